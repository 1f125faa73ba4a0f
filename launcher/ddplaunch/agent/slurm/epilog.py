"""After a job: removes its processes and files from the node, and nothing of any other job.

Control group or environment show which processes are the job's, the name shows its folder. Files of NCCL and
torch show only their user: they are removed when no living process of that user is old enough to have made
them. Other files of the user are removed only where the next job would have no space.

Nothing of a user is trusted: names and arguments of processes are printed escaped and cut, a pid is signalled
only while it is the same process, and files are removed with the user's own rights.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.slurm import jobs, room
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.printable import printable

_PATIENCE = 10.0
"""Seconds for killed processes to end. One that hangs in the kernel may never."""
_MARGIN = 1.0
"""Seconds by which a file must be older than a process: their times have different resolutions."""
_SHARED = ("/dev/shm/nccl-*", "/dev/shm/torch_*", "/tmp/torch-shm-dir-*", "/tmp/torchelastic_*")  # noqa: S108 - their own
_NOBODY = 65534
_PLACES = (room.TEMPORARY, room.KEPT_LONGER, room.SHARED_MEMORY)
_AT_ONCE = 500
"""Paths in one command."""
_REMOVAL = 20.0
"""Seconds for one command."""
_SHOWN = 20
_LONGEST = 200
"""Characters of a line."""


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Clean up. Returns `Exit.NODE_AT_FAULT` when a process cannot be killed: it may hold a GPU."""
    job, user = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_JOB_UID"])
    stuck = _kill(job, user)
    alive = jobs.processes(user)
    others = {process.job for process in alive}.intersection(jobs.here()) - {job}
    _remove(_own(_own_folders(job), user), user)
    oldest = min((process.started for process in alive), default=time.time() + _MARGIN)
    _remove(_shared_files(user, oldest), user)
    if user != 0 and not others:
        _make_room(user)
    for pid in stuck:
        _log(f"process {pid} of job {job} does not end, not even by SIGKILL")
    return Exit.NODE_AT_FAULT if stuck else Exit.OK


def _kill(job: int, user: int) -> list[int]:
    """Kill the job's processes. Returns the pids that are still there after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    signalled: set[int] = set()
    while True:
        left = [process for process in jobs.processes(user) if process.job == job]
        if not left or time.monotonic() > deadline:
            return [process.pid for process in left]
        for process in left:
            if process.pid not in signalled:
                _log(f"killing process {process.pid} of job {job}: {proc.command_line(process.pid)}")
            signalled.add(process.pid)
            with contextlib.suppress(ProcessLookupError):
                end(process)
        time.sleep(0.05)


def end(process: jobs.Owned) -> None:
    """Kill this process, and no other that has its pid by now. Raises ProcessLookupError."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # before Linux 5.3: microseconds between check and signal
        if _is_still(process):
            os.kill(process.pid, signal.SIGKILL)
        return
    try:
        if _is_still(process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _is_still(process: jobs.Owned) -> bool:
    stat = proc.stat(process.pid)
    return stat is not None and stat.started == process.ticks


def _own_folders(job: int) -> list[str]:
    """Return the folders of the job's agent, by the job's number: 1 must not match 12."""
    names = (f"/tmp/ddplaunch-{job}{end}" for end in ("", ".*", "-*"))  # noqa: S108 - what job.bash made
    return [path for name in names for path in glob.glob(name)]


def _shared_files(user: int, oldest: float) -> list[str]:
    """Return the user's shared files that are older than `oldest`, the start of the user's oldest process."""
    paths = []
    for path in (path for pattern in _SHARED for path in glob.glob(pattern)):
        try:
            stat = os.lstat(path)
        except OSError:
            continue
        if stat.st_uid == user and stat.st_ctime < oldest - _MARGIN:
            paths.append(path)
    return paths


def _own(paths: list[str], user: int) -> list[str]:
    """Return the paths that belong to `user`."""
    own = []
    for path in paths:
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == user:
                own.append(path)
    return own


def _make_room(user: int) -> None:
    """Delete all files of `user`, who has no other job here, from folders without space for the next job.

    Else the next prolog would take this node out of service, and the job's next run another node.
    """
    for place in _PLACES:
        lacking = room.lacking(place)
        if lacking:
            _log(f"{lacking}: removing the files of user {user} there")
            _remove(_own([os.path.join(place, name) for name in os.listdir(place)], user), user)


def _remove(paths: list[str], user: int) -> None:
    """Remove paths, of any depth and mode, with the rights of `user`."""
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        folders = [path for path in some if os.path.isdir(path) and not os.path.islink(path)]
        if folders:
            _call(user, "chmod", "-R", "u+rwX", "--", *folders)
        _call(user, "rm", "-rf", "--one-file-system", "--", *some)
    left = [path for path in paths if os.path.lexists(path)]
    for path in paths[:_SHOWN]:
        _log(f"{'left' if path in left else 'removed'} {path}")
    if len(paths) > _SHOWN:
        _log(f"{len(paths)} paths in all, of which {len(left)} are left")


def _call(user: int, *command: str) -> None:
    """Run the command as `user`, for _REMOVAL seconds at most: the user may have stopped it."""
    demoted = os.geteuid() == 0 != user
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVAL,
            user=user if demoted else None,
            group=_NOBODY if demoted else None,
            extra_groups=[] if demoted else None,
        )


def _log(text: str) -> None:
    """Print `text` as one line, escaped and cut."""
    print(printable(text[:_LONGEST]), file=sys.stderr)
