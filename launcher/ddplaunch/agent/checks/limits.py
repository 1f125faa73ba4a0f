"""Checks: how much memory a rank may lock, and how many processes and threads may be started here.

RDMA pins its send buffers, and these count against the first limit. Linux, drivers/infiniband/core/umem.c:
beyond a process's soft RLIMIT_MEMLOCK, pinning fails with ENOMEM, unless the process has CAP_IPC_LOCK in the
first user namespace. At its first connection NCCL prints `Call to ibv_reg_mr failed with error Cannot
allocate memory`, or the same for ibv_create_cq, and the other ranks wait.

Linux counts processes and threads together. clone(2) fails with EAGAIN beyond the user's RLIMIT_NPROC, which
root and the capabilities SYS_RESOURCE and SYS_ADMIN lift, and beyond the pids.max of a control group or of
one above it. Python then says `can't start new thread`, OpenBLAS `pthread_create failed`, a shell `fork:
Resource temporarily unavailable`; and whatever needs that thread waits for it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import rdma
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.evidence import cgroup
from ddplaunch.agent.system import phrases, processes
from ddplaunch.agent.system.phrases import count

# --- locked memory

LEAST_LOCKED = 64 << 20
"""Bytes. A connection of NCCL has buffers of 9 MiB (4 for large messages, 5 for small ones), and a ring of
two channels has four connections. They are pinned if the GPU's own memory cannot be. Defaults are far lower:
64 KiB, or 8 MiB with systemd and newer kernels."""
_LOCKED_HINT = (
    "`ulimit -l unlimited` where the job is started; if that is refused, `* - memlock unlimited` in "
    "/etc/security/limits.conf, or `docker run --ulimit memlock=-1`"
)


def check_memlock(context: Context, root: str = "/") -> CheckResult:
    """FAIL if the ranks send by RDMA and cannot pin enough memory. They inherit the gate's limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    facts = {"soft": soft, "hard": hard}
    observed = f"{_limit_text(soft)} may be locked"
    if soft == resource.RLIM_INFINITY or not rdma.is_used(context, root):
        return passed("memlock", observed, **facts)
    if processes.has_capability(processes.IPC_LOCK):
        return passed("memlock", f"{observed}, and CAP_IPC_LOCK lifts that", **facts)
    hint = platforms.named(context.plan.platform).hint("memlock", _LOCKED_HINT)
    if soft >= LEAST_LOCKED:
        return unknown("memlock", f"{observed}, which may not do for RDMA", hint, **facts)
    more = f" (a process may raise it to {_limit_text(hard)})" if hard != soft else ""
    return failed(
        "memlock",
        "memlock-too-small",
        f"a rank may lock {_limit_text(soft)} of memory{more}, which RDMA cannot work with",
        "unlimited",
        hint,
        **facts,
    )


def _limit_text(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else phrases.size(limit)


# --- processes and threads

LEAST_THREADS = 5
"""Threads of a rank with Gloo: its main thread, three that Gloo starts, and one of ddplaunch's. With NCCL a
rank has more."""
ENOUGH_THREADS = 64
"""Threads and processes of a rank with CUDA, NCCL, autograd and DataLoader workers. Many ranks have fewer."""
_THREAD_HINTS = {
    "ulimit -u": "`ps -LU $USER` shows what runs here: end some of it, or set `* - nproc unlimited` in "
    "/etc/security/limits.conf",
    "pids.max": "raise the container's or the service's limit: `docker run --pids-limit`, `TasksMax=`",
}


class Room(NamedTuple):
    left: int
    limit: int
    name: str  # the limit's name


def check_threads(context: Context) -> CheckResult:
    """FAIL if there is no room even for the ranks' own threads, whatever their program does."""
    room = room_for_threads()
    if room is None:
        return passed("threads", "no limit is seen")
    ranks = context.plan.nproc_per_node or 1
    observed = f"room for {count(room.left, 'more thread')} ({room.name} is {room.limit})"
    facts = {"left": room.left, "limit": room.limit}
    hint = platforms.named(context.plan.platform).hint(room.name, _THREAD_HINTS[room.name])
    if room.left >= ENOUGH_THREADS * ranks:
        return passed("threads", observed, **facts)
    if room.left >= LEAST_THREADS * ranks:
        return unknown("threads", f"{observed}, which may not do", hint, **facts)
    wanted = f"{LEAST_THREADS} for each rank at the very least"
    return failed("threads", "threads-too-few", observed, wanted, hint, **facts)


def room_for_threads(root: str = "/") -> Optional[Room]:
    """Return the limit that leaves the least room, not counting the checks' own use; None: none is visible.

    Processes in other containers also count against the user's limit and cannot be seen: then there is less
    room.
    """
    statuses = {int(name): _status(name) for name in os.listdir("/proc") if name.isdigit()}
    rooms = [Room(limit - used, limit, "pids.max") for limit, used in cgroup.tasks(root)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and not _is_unlimited():
        used = sum(each.get("Threads", 0) for each in statuses.values() if each.get("Uid") == os.getuid())
        rooms.append(Room(soft - used, soft, "ulimit -u"))
    if not rooms:
        return None
    tightest = min(rooms)
    ending = sum(statuses[pid].get("Threads", 0) for pid in _family(os.getpid(), statuses)) - 1
    return tightest._replace(left=max(0, tightest.left + ending))


def _is_unlimited() -> bool:
    """Whether the user's limit does not apply to us."""
    is_root = os.getuid() == 0 and processes.is_in_first_namespace()
    return is_root or processes.has_capability(processes.SYS_RESOURCE, processes.SYS_ADMIN)


def _family(pid: int, statuses: Mapping[int, Mapping[str, int]]) -> set[int]:
    """Return the process and all its descendants: a check asks the user's Python in a child."""
    family: set[int] = set()
    generation = {pid} & statuses.keys()
    while generation:
        family |= generation
        generation = {each for each, status in statuses.items() if status.get("PPid") in generation} - family
    return family


def _status(pid: str) -> dict[str, int]:
    """Return the first number of each line in /proc/PID/status that has one; empty if the process has
    ended.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        return {}
    words = {name: value.split() for name, _, value in lines}
    return {name: int(its[0]) for name, its in words.items() if its and its[0].isdigit()}
