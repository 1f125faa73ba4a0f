"""After a job has ended on a node: what it left there is taken away, and nothing of any other job.

Its processes are known by their control group or environment. Its folder is known by its name. Files of NCCL
and torch do not tell whose they are, only which user's: they go when no living process of that user is old
enough to have made them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.evidence import proc
from ddplaunch.agent.slurm import jobs

_PATIENCE = 10.0
"""Seconds for killed processes to go. One in the kernel's hands may never."""
_MARGIN = 1.0
"""Seconds by which a file must be older than a process: clocks of files and of processes differ in grain."""
_SHARED = ("/dev/shm/nccl-*", "/dev/shm/torch_*", "/tmp/torch-shm-dir-*", "/tmp/torchelastic_*")  # noqa: S108 - their own
_NOBODY = 65534


def main(environment: Mapping[str, str] = os.environ) -> int:
    """`Exit.NODE_AT_FAULT` when a process of the job cannot be killed: it may hold memory, or a GPU."""
    job, user = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_JOB_UID"])
    stuck = _kill(job, user)
    alive = [process.started for process in jobs.processes(user)]
    _become(user)
    for path in _own_folders(job) + _shared_files(user, min(alive, default=time.time() + _MARGIN)):
        _remove(path)
    for pid in stuck:
        print(f"process {pid} of job {job} does not end, not even by SIGKILL", file=sys.stderr)
    return Exit.NODE_AT_FAULT if stuck else Exit.OK


def _kill(job: int, user: int) -> list[int]:
    """Returns what is still there after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    told: set[int] = set()
    while True:
        left = [process.pid for process in jobs.processes(user) if process.job == job]
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            if pid not in told:
                print(f"killing process {pid} of job {job}: {proc.command_line(pid)}", file=sys.stderr)
            told.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _become(user: int) -> None:
    """Whatever is removed from here on, only this user could have removed it."""
    if os.geteuid() == 0 and user != 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(user)


def _own_folders(job: int) -> list[str]:
    """Where the job's agent works: by the job's number, of which 1 must not stand for 12."""
    names = (f"/tmp/ddplaunch-{job}{end}" for end in ("", ".*", "-*"))  # noqa: S108 - what job.bash made
    return [path for name in names for path in glob.glob(name)]


def _shared_files(user: int, oldest: float) -> list[str]:
    """What no process that began at `oldest` or later can have made."""
    found = []
    for path in (path for pattern in _SHARED for path in glob.glob(pattern)):
        try:
            stat = os.lstat(path)
        except OSError:
            continue
        if stat.st_uid == user and stat.st_ctime < oldest - _MARGIN:
            found.append(path)
    return found


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        print(f"removed {path}", file=sys.stderr)
    except OSError as error:
        print(f"left {path}: {error.strerror}", file=sys.stderr)
