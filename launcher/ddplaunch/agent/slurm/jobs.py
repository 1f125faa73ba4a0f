"""Finds which job each process on this node belongs to, from /proc."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional

from ddplaunch.agent.system import proc

_STEP_DAEMON = re.compile(r"slurmstepd: \[(\d+)")
_VARIABLE = "SLURM_JOB_ID"
_GROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


class Owned(NamedTuple):
    """A process of a user."""

    pid: int
    job: int  # 0: no job is visible
    started: float  # seconds since the epoch
    ticks: int  # when it started since boot; with the pid it names a process for good


def here() -> list[int]:
    """Return the ids of jobs with a step on this node: each has a daemon of Slurm, whose title names it."""
    return sorted({job for job in map(_step_of, _pids()) if job is not None})


def processes(user: int) -> list[Owned]:
    """Return living processes whose real user is `user`, without this one and its ancestors."""
    boot = _boot_time()
    own = _ancestors()
    processes = []
    for pid in _pids():
        stat = proc.stat(pid)
        if pid in own or stat is None or stat.state in "ZX" or _user(pid) != user:
            continue
        if _step_of(pid) is not None:
            continue
        started = boot + stat.started / os.sysconf("SC_CLK_TCK")
        processes.append(Owned(pid, _job(pid), started, stat.started))
    return processes


def _step_of(pid: int) -> Optional[int]:
    """Return the job of a step daemon of Slurm. It must be root's: any process can take such a title."""
    title = _STEP_DAEMON.match(proc.command_line(pid)) if _user(pid) == 0 else None
    return int(title[1]) if title else None


def _job(pid: int) -> int:
    """Return the process's job by its control group, which it cannot leave, else by its environment."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            group = _GROUP.search(file.read())
    except OSError:
        return 0
    value = group[1] if group else proc.environment(pid).get(_VARIABLE, "")
    return int(value) if value.isdigit() else 0


def _user(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            line = next(line for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1
    return int(line.split()[1])


def _ancestors() -> set[int]:
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0:
        pids.add(pid)
        stat = proc.stat(pid)
        pid = stat.parent if stat else 0
    return pids


def _boot_time() -> float:
    with open("/proc/stat", encoding="ascii") as file:
        return float(next(line for line in file if line.startswith("btime ")).split()[1])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
