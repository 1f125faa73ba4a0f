"""Check: how many more processes and threads may be started here. Linux counts both together.

clone(2) fails with EAGAIN beyond RLIMIT_NPROC of the user, which root and the capabilities SYS_RESOURCE and
SYS_ADMIN lift, and beyond pids.max of a control group or of one above it. Python then says `can't start new
thread`, OpenBLAS `pthread_create failed`, a shell `fork: Resource temporarily unavailable`; and who needs
that thread waits for it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.evidence import cgroup
from ddplaunch.agent.system import processes
from ddplaunch.agent.system.phrases import count

LEAST = 5
"""Threads of a rank with Gloo: its main thread, three that Gloo starts, and one of ddplaunch. With NCCL a
rank has more."""
ENOUGH = 64
"""Threads and processes of a rank with CUDA, NCCL, autograd and a DataLoader's workers. Many have fewer."""
_HINTS = {
    "ulimit -u": "`ps -LU $USER` shows what runs here: end some of it, or set `* - nproc unlimited` in "
    "/etc/security/limits.conf",
    "pids.max": "raise the container's or the service's limit: `docker run --pids-limit`, `TasksMax=`",
}


class Room(NamedTuple):
    left: int
    limit: int
    name: str  # of the limit


def check(context: Context) -> CheckResult:
    """FAIL where not even the ranks' own threads have room, whatever their program does."""
    room = left()
    if room is None:
        return passed("threads", "no limit is seen")
    ranks = context.plan.nproc_per_node or 1
    observed = f"room for {count(room.left, 'more thread')} ({room.name} is {room.limit})"
    facts = {"left": room.left, "limit": room.limit}
    hint = platforms.named(context.plan.platform).hint(room.name, _HINTS[room.name])
    if room.left >= ENOUGH * ranks:
        return passed("threads", observed, **facts)
    if room.left >= LEAST * ranks:
        return unknown("threads", f"{observed}, which may not do", hint, **facts)
    wanted = f"{LEAST} for each rank at the very least"
    return failed("threads", "threads-too-few", observed, wanted, hint, **facts)


def left(root: str = "/") -> Optional[Room]:
    """Return the limit that leaves the least room, the checks' own use not counted; None: none is seen.

    Processes in other containers count against the user's limit as well, and are unseen: then there is less.
    """
    statuses = {int(name): _status(name) for name in os.listdir("/proc") if name.isdigit()}
    rooms = [Room(limit - used, limit, "pids.max") for limit, used in cgroup.tasks(root)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and not _is_free():
        used = sum(each.get("Threads", 0) for each in statuses.values() if each.get("Uid") == os.getuid())
        rooms.append(Room(soft - used, soft, "ulimit -u"))
    if not rooms:
        return None
    tightest = min(rooms)
    ending = sum(statuses[pid].get("Threads", 0) for pid in _below(os.getpid(), statuses)) - 1
    return tightest._replace(left=max(0, tightest.left + ending))


def _is_free() -> bool:
    """Whether the user's limit does not bind us."""
    is_root = os.getuid() == 0 and processes.is_in_first_namespace()
    return is_root or processes.has_capability(processes.SYS_RESOURCE, processes.SYS_ADMIN)


def _below(pid: int, statuses: Mapping[int, Mapping[str, int]]) -> set[int]:
    """Return the process and all that descend from it: a check asks the user's Python in a child."""
    family: set[int] = set()
    generation = {pid} & statuses.keys()
    while generation:
        family |= generation
        generation = {each for each, status in statuses.items() if status.get("PPid") in generation} - family
    return family


def _status(pid: str) -> dict[str, int]:
    """Return the first number of the lines of /proc/PID/status that have one; empty where it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        return {}
    words = {name: value.split() for name, _, value in lines}
    return {name: int(its[0]) for name, its in words.items() if its and its[0].isdigit()}
