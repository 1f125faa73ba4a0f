"""Checks: CPUs, memory, shared memory, disks and the clock of this node or container.

Free space and load are of this moment: what another process takes later is not foreseen.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from typing import Any, Optional

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult, Files, Status
from ddplaunch.agent.evidence import cgroup
from ddplaunch.agent.system.phrases import size
from ddplaunch.agent.system.processes import TMP

# --- CPUs: how many the ranks may use, and whether other processes use them. It only warns

_WINDOW = 0.2
"""Seconds of the measurement: enough to tell busy from idle, short beside the rest of the gate."""
_BUSY = 0.5
"""Share of the CPUs that other processes may use without a remark."""


def check_cpu(context: Context) -> CheckResult:
    """UNKNOWN when ranks will have to share; never FAIL: a slow job is not a broken one."""
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
    threads = context.variable("OMP_NUM_THREADS")  # torchrun sets it to 1 where there are several ranks
    if threads.isdigit() and cpus < ranks * int(threads):
        many = f"{ranks} rank{'s' * (ranks > 1)} of {threads} threads"
        return _scarce_cpus(f"{observed} for {many}", "threads will take turns: lower OMP_NUM_THREADS", facts)
    if busy > _BUSY and load > _BUSY * cpus:
        return _scarce_cpus(
            f"{observed}: other processes use them", "see `top` on that node; the ranks will be slow", facts
        )
    return passed("cpu", observed, **facts)


def _scarce_cpus(observed: str, hint: str, facts: dict[str, Any]) -> CheckResult:
    return CheckResult("cpu", Status.UNKNOWN, observed, hint=hint, code="cpu-busy", facts=facts)


def cpu_quota(folder: str = "/sys/fs/cgroup") -> Optional[float]:
    """Return the CPUs that the container's control group allows; None without a visible limit."""
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
    """Return the share of the machine's CPUs in use over the window, our own checks included."""
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
"""A machine sold with 64 GiB shows 62.7, without the share of firmware and kernel."""


def check_memory(context: Context) -> CheckResult:
    """FAIL when there is less than the job file asks for."""
    machine = meminfo()
    group = cgroup.memory()
    total, free = machine["MemTotal"], machine["MemAvailable"]
    where = "the machine"
    if group.limit is not None and group.limit < total:
        total, where = group.limit, "its control group"
    if group.limit is not None and group.used is not None:
        # Page cache counts as used here, and is freed when needed: this is a lower bound.
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
"""Share of the requested size: "1 GB" and "1 GiB" are 7 % apart, and a page more or less is no fault."""
_SHM_HINT = (
    "in the job file: `resources.shm`; Docker: --shm-size; a machine: `mount -o remount,size=SIZE /dev/shm`"
)


def check_shm(context: Context, folder: str = "/dev/shm") -> CheckResult:  # noqa: S108 - that is its place
    """FAIL when there is less than the job file asks for: the trainer's own need is unknown."""
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
    """FAIL when a file cannot be written there: statvfs does not see quotas."""
    run = os.path.join(context.folder, Files.RUN)
    # Where /tmp is not writable, the ranks get a folder of the job's.
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
    if context.plan.nproc_per_node is None:  # `run`: the user's own command may need no such folder
        return unknown("disk", observed, _MAY_FAIL)
    hint = f"`df -h {place}` on that node; make room there"
    return failed("disk", "disk-full", observed, f"at least {size(LEAST_SPACE)}", hint, patience=0.0)


# --- the clock. Only the hub can compare it with the others


def check_clock(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """PASS; the hub compares the time of the check-in."""
    return passed("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
