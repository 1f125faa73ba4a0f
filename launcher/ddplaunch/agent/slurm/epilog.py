"""After a job: removes what it left on the node, and nothing of any other job.

Its processes are known by their control group or environment. Its folder is known by its name. Files of NCCL
and torch do not tell whose they are, only which user's: they go when no living process of that user is old
enough to have made them. What else the user left goes only where it leaves no room for the next job.

Everything here may be a trap: names and words of processes are printed escaped and cut, a pid is signalled
only while it is the process that was looked at, and files are removed with the user's own rights.
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
"""Seconds for killed processes to go. One in the kernel's hands may never."""
_MARGIN = 1.0
"""Seconds by which a file must be older than a process: clocks of files and of processes differ in grain."""
_SHARED = ("/dev/shm/nccl-*", "/dev/shm/torch_*", "/tmp/torch-shm-dir-*", "/tmp/torchelastic_*")  # noqa: S108 - their own
_NOBODY = 65534
_PLACES = (room.TEMPORARY, room.KEPT_LONGER, room.SHARED_MEMORY)
_AT_ONCE = 500
"""Paths on one command line."""
_REMOVAL = 20.0
"""Seconds for one of them."""
_SHOWN = 20
_LONGEST = 200
"""Characters of a line."""


def main(environment: Mapping[str, str] = os.environ) -> int:
    """`Exit.NODE_AT_FAULT` when a process of the job cannot be killed: it may hold memory, or a GPU."""
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
        _say(f"process {pid} of job {job} does not end, not even by SIGKILL")
    return Exit.NODE_AT_FAULT if stuck else Exit.OK


def _kill(job: int, user: int) -> list[int]:
    """Returns what is still there after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    told: set[int] = set()
    while True:
        left = [process for process in jobs.processes(user) if process.job == job]
        if not left or time.monotonic() > deadline:
            return [process.pid for process in left]
        for process in left:
            if process.pid not in told:
                _say(f"killing process {process.pid} of job {job}: {proc.command_line(process.pid)}")
            told.add(process.pid)
            with contextlib.suppress(ProcessLookupError):
                end(process)
        time.sleep(0.05)


def end(process: jobs.Owned) -> None:
    """SIGKILL for this process, and for no other that has its pid by now. Raises ProcessLookupError."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # before Linux 5.3: between the look and the signal lie microseconds
        if _is_still(process):
            os.kill(process.pid, signal.SIGKILL)
        return
    try:
        if _is_still(process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _is_still(process: jobs.Owned) -> bool:
    found = proc.stat(process.pid)
    return found is not None and found.started == process.ticks


def _own_folders(job: int) -> list[str]:
    """Return where the job's agent works: by the job's number, of which 1 must not stand for 12."""
    names = (f"/tmp/ddplaunch-{job}{end}" for end in ("", ".*", "-*"))  # noqa: S108 - what job.bash made
    return [path for name in names for path in glob.glob(name)]


def _shared_files(user: int, oldest: float) -> list[str]:
    """Return what no process that began at `oldest` or later can have made."""
    found = []
    for path in (path for pattern in _SHARED for path in glob.glob(pattern)):
        try:
            stat = os.lstat(path)
        except OSError:
            continue
        if stat.st_uid == user and stat.st_ctime < oldest - _MARGIN:
            found.append(path)
    return found


def _own(paths: list[str], user: int) -> list[str]:
    """Return the paths that belong to `user`."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == user:
                found.append(path)
    return found


def _make_room(user: int) -> None:
    """Delete what `user`, who has no other job here, has left, where no next job could work.

    The next prolog would take the node out of service for it, and the one after that the next node.
    """
    for place in _PLACES:
        lacking = room.lacking(place)
        if lacking:
            _say(f"{lacking}: whatever user {user} has left there goes")
            _remove(_own([os.path.join(place, name) for name in os.listdir(place)], user), user)


def _remove(paths: list[str], user: int) -> None:
    """However deep, and whatever modes folders were given; nothing that `user` could not remove."""
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        folders = [path for path in some if os.path.isdir(path) and not os.path.islink(path)]
        if folders:
            _call(user, "chmod", "-R", "u+rwX", "--", *folders)
        _call(user, "rm", "-rf", "--one-file-system", "--", *some)
    left = [path for path in paths if os.path.lexists(path)]
    for path in paths[:_SHOWN]:
        _say(f"{'left' if path in left else 'removed'} {path}")
    if len(paths) > _SHOWN:
        _say(f"{len(paths)} paths in all, of which {len(left)} are left")


def _call(user: int, *command: str) -> None:
    """Run it as `user`, who may have it stopped or killed, and for so long alone."""
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


def _say(text: str) -> None:
    """One line, whatever stands in it."""
    print(printable(text[:_LONGEST]), file=sys.stderr)
