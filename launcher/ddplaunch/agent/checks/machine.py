"""Checks: CPUs, memory, shared memory, disks, clock and limits of this node or container.

Free space and load are of this moment: what another process takes later is not foreseen.

RDMA pins its send buffers, which count against the memory that a process may lock. Linux,
drivers/infiniband/core/umem.c: beyond a process's soft RLIMIT_MEMLOCK pinning fails with ENOMEM, unless it
has CAP_IPC_LOCK in the first user namespace. NCCL prints `Call to ibv_reg_mr failed with error Cannot
allocate memory`, or ibv_create_cq, at its first connection, and the other ranks wait.

Linux counts processes and threads together. clone(2) fails with EAGAIN beyond RLIMIT_NPROC of the user, which
root and the capabilities SYS_RESOURCE and SYS_ADMIN lift, and beyond pids.max of a control group or of one
above it. Python then says `can't start new thread`, OpenBLAS `pthread_create failed`, a shell `fork: Resource
temporarily unavailable`; and who needs that thread waits for it.
"""

from __future__ import annotations

import errno
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import rdma
from ddplaunch.agent.checks.context import Context, failed, noted, passed, unknown
from ddplaunch.agent.contract import CheckResult, Files
from ddplaunch.agent.evidence import cgroup
from ddplaunch.agent.system import phrases, processes
from ddplaunch.agent.system.processes import TMP
from ddplaunch.agent.text.quantities import count, size

# --- CPUs: how many the ranks may use, and whether other processes use them. This only warns

_WINDOW = 0.2
"""Seconds to measure: enough to tell busy from idle, and short compared with the rest of the gate."""
_BUSY = 0.5
"""Share of the CPUs that other processes may use before it is mentioned."""


def check_cpu(context: Context) -> CheckResult:
    """UNKNOWN if ranks will have to share; never FAIL, because a slow job is not a broken one."""
    allowed = len(os.sched_getaffinity(0))
    limit = cpu_quota()
    cpus = min(allowed, limit) if limit else allowed
    busy = _busy_share()
    load = os.getloadavg()[0]
    facts = {"cpus": cpus, "busy": round(busy, 2), "load": round(load, 1)}
    observed = f"{cpus:g} CPUs, {busy:.0%} busy, load {load:.1f}"
    ranks = context.plan.nproc_per_node or 1
    wanted = context.plan.resources.cpus
    if wanted and cpus < wanted:
        return _scarce_cpus(f"{observed}; the job asks for {wanted:g}", "ranks will be slow", facts)
    if cpus < ranks:
        return _scarce_cpus(f"{observed} for {ranks} ranks", "ranks will take turns", facts)
    threads = context.variable("OMP_NUM_THREADS")  # torchrun sets it to 1 if there are several ranks
    if threads.isdigit() and cpus < ranks * int(threads):
        many = f"{count(ranks, 'rank')} of {threads} threads"
        return _scarce_cpus(f"{observed} for {many}", "threads will take turns: lower OMP_NUM_THREADS", facts)
    if busy > _BUSY and load > _BUSY * cpus:
        return _scarce_cpus(
            f"{observed}: other processes use them", "see `top` on that node; the ranks will be slow", facts
        )
    return passed("cpu", observed, **facts)


def _scarce_cpus(observed: str, hint: str, facts: dict[str, Any]) -> CheckResult:
    return noted("cpu", "cpu-busy", observed, hint, **facts)


def cpu_quota(folder: str = "/sys/fs/cgroup") -> Optional[float]:
    """Return the CPUs that the container's control group allows; None if no limit is visible."""
    try:
        with open(os.path.join(folder, "cpu.max"), encoding="ascii") as file:
            share, period = file.read().split()
        return None if share == "max" else int(share) / int(period)
    except (OSError, ValueError):
        pass
    try:
        with open(os.path.join(folder, "cpu/cpu.cfs_quota_us"), encoding="ascii") as file:
            share = file.read().strip()
        with open(os.path.join(folder, "cpu/cpu.cfs_period_us"), encoding="ascii") as file:
            return None if int(share) < 0 else int(share) / int(file.read())
    except (OSError, ValueError):
        return None


def _busy_share() -> float:
    """Return the share of the machine's CPUs that is in use over the window, including our own checks."""
    before = _ticks()
    time.sleep(_WINDOW)
    after = _ticks()
    total = sum(after) - sum(before)
    idle = (after[3] + after[4]) - (before[3] + before[4])
    return 1 - idle / total if total else 0.0


def _ticks() -> list[int]:
    with open("/proc/stat", encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


# --- memory: how much the node or the container has, and how much is free

_MEMORY_TOLERANCE = 0.95
"""A machine sold with 64 GiB shows 62.7: firmware and kernel take a share."""


def check_memory(context: Context) -> CheckResult:
    """FAIL if there is less than the job file asks for."""
    machine = meminfo()
    group = cgroup.memory()
    total, free = machine["MemTotal"], machine["MemAvailable"]
    where = "the machine"
    if group.limit is not None and group.limit < total:
        total, where = group.limit, "its control group"
    if group.limit is not None and group.used is not None:
        # Page cache counts as used here but is freed when needed, so this is a lower bound.
        free = min(free, max(group.limit - group.used, 0))
    facts = {"total": total, "free": free}
    wanted = context.plan.resources.memory
    if wanted and total < wanted * _MEMORY_TOLERANCE:
        return failed(
            "memory",
            "memory-too-small",
            f"{where} has {size(total)} of memory",
            wanted=size(wanted),
            hint="ask for less (`resources.memory`) or for larger nodes",
            **facts,
        )
    if wanted and machine["MemAvailable"] < wanted * _MEMORY_TOLERANCE:
        return failed(
            "memory",
            "memory-too-small",
            f"only {size(machine['MemAvailable'])} of {size(machine['MemTotal'])} of memory are free",
            wanted=size(wanted),
            hint="others hold the rest: `ps aux --sort -rss | head` on that node shows them",
            patience=0.0,
            **facts,
        )
    return passed("memory", f"{size(free)} free of {size(total)}", **facts)


def meminfo(path: str = "/proc/meminfo") -> dict[str, int]:
    """Return bytes by name. Raises OSError."""
    with open(path, encoding="ascii") as file:
        pairs = (line.partition(":") for line in file)
        return {name: int(value.split()[0]) * 1024 for name, _, value in pairs}


# --- shared memory, where NCCL and DataLoader workers put tensors. Containers have 64 MiB by default

_CONTAINER_DEFAULT = 64 << 20
_SHM_TOLERANCE = 0.95
"""Share of the requested size: "1 GB" and "1 GiB" are 7 % apart, and one page more or less does not
matter."""
_SHM_HINT = (
    "in the job file: `resources.shm`; Docker: --shm-size; a machine: `mount -o remount,size=SIZE /dev/shm`"
)


def check_shm(context: Context, folder: str = "/dev/shm") -> CheckResult:  # noqa: S108 - that is its place
    """FAIL if there is less than the job file asks for. What the trainer itself needs is not known."""
    wanted = context.plan.resources.shm
    try:
        stat = os.statvfs(folder)
    except OSError as error:
        if wanted:
            return failed("shm", "shm-too-small", f"{folder}: {error.strerror}", size(wanted), _SHM_HINT)
        return unknown("shm", f"{folder}: {error.strerror}", _SHM_HINT)
    total, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    observed = f"{folder} is {size(total)}, {size(free)} free"
    facts = {"total": total, "free": free}
    if wanted and total < wanted * _SHM_TOLERANCE:
        return failed("shm", "shm-too-small", f"{folder} is {size(total)}", size(wanted), _SHM_HINT, **facts)
    if wanted and free < wanted * _SHM_TOLERANCE:
        return unknown("shm", f"{observed}, the job asks for {size(wanted)}", "others fill it", **facts)
    if not wanted and total <= _CONTAINER_DEFAULT and (context.plan.nproc_per_node or 2) > 1:
        return unknown("shm", observed, f"DataLoader workers and NCCL may need more; {_SHM_HINT}", **facts)
    return passed("shm", observed, **facts)


# --- free space in the temporary folder, where torchrun writes its logs, and in the job's folder

LEAST_SPACE = 16 << 20
"""Bytes. Logs alone fill less."""
_PROBE = b"\0" * (1 << 16)
_MAY_FAIL = "the trainer may not be able to write there"
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def check_disk(context: Context) -> CheckResult:
    """FAIL if no file can be written there. A file is written because statvfs does not see quotas."""
    run = os.path.join(context.folder, Files.RUN)
    # If /tmp is not writable, the ranks get a folder inside the job's.
    temporary = context.variable("TMPDIR") or (TMP if os.access(TMP, os.W_OK) else run)
    places = dict.fromkeys([temporary, run])
    observed = []
    for place in places:
        try:
            os.makedirs(place, exist_ok=True)
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(_PROBE)
                file.flush()
            stat = os.statvfs(place)
        except OSError as error:
            if error.errno in _FULL_ERRORS:
                return _disk_full(context, f"cannot write to {place}: {error.strerror}", place)
            return unknown("disk", f"{place}: {error.strerror}", _MAY_FAIL)
        free = stat.f_bavail * stat.f_frsize
        if free < LEAST_SPACE:
            return _disk_full(context, f"{size(free)} free in {place}", place)
        observed.append(f"{size(free)} free in {place}")
    return passed("disk", ", ".join(observed))


def _disk_full(context: Context, observed: str, place: str) -> CheckResult:
    if context.plan.nproc_per_node is None:  # `run`: the user's own command may not need such a folder
        return unknown("disk", observed, _MAY_FAIL)
    hint = f"`df -h {place}` on that node; make room there"
    return failed("disk", "disk-full", observed, f"at least {size(LEAST_SPACE)}", hint, patience=0.0)


# --- the clock. Only the hub can compare it with the others


def check_clock(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """PASS; the hub compares the time of the check-in."""
    return passed("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


# --- locked memory

LEAST_LOCKED = 64 << 20
"""Bytes. A connection of NCCL has buffers of 9 MiB (4 for large messages, 5 for small ones), a ring of two
channels has four connections, and they are pinned where the GPU's own memory cannot be. Defaults are far
below: 64 KiB, or 8 MiB by systemd and newer kernels."""
_LOCKED_HINT = (
    "`ulimit -l unlimited` where the job is started; if that is refused, `* - memlock unlimited` in "
    "/etc/security/limits.conf, or `docker run --ulimit memlock=-1`"
)


def check_memlock(context: Context, root: str = "/") -> CheckResult:
    """FAIL where the ranks send by RDMA and cannot pin enough. They inherit the gate's limit."""
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
"""Threads of a rank with Gloo: its main thread, three that Gloo starts, and one of ddplaunch. With NCCL a
rank has more."""
ENOUGH_THREADS = 64
"""Threads and processes of a rank with CUDA, NCCL, autograd and a DataLoader's workers. Many have fewer."""
_THREAD_HINTS = {
    "ulimit -u": "`ps -LU $USER` shows what runs here: end some of it, or set `* - nproc unlimited` in "
    "/etc/security/limits.conf",
    "pids.max": "raise the container's or the service's limit: `docker run --pids-limit`, `TasksMax=`",
}


class Room(NamedTuple):
    left: int
    limit: int
    name: str  # of the limit


def check_threads(context: Context) -> CheckResult:
    """FAIL where not even the ranks' own threads have room, whatever their program does."""
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
    """Return the limit that leaves the least room, the checks' own use not counted; None: none is seen.

    Processes in other containers count against the user's limit as well, and are unseen: then there is less.
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
    return tightest._replace(left=min(max(0, tightest.left + ending), tightest.limit))


def _is_unlimited() -> bool:
    """Whether the user's limit does not bind us."""
    is_root = os.getuid() == 0 and processes.is_in_first_namespace()
    return is_root or processes.has_capability(processes.SYS_RESOURCE, processes.SYS_ADMIN)


def _family(pid: int, statuses: Mapping[int, Mapping[str, int]]) -> set[int]:
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
