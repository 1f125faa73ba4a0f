"""Check: how many CPUs the ranks may use, and whether other processes use them. It only warns."""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from ddplaunch.agent.checks.context import Context, passed
from ddplaunch.agent.contract import CheckResult, Status

_WINDOW = 0.2
"""Seconds of the measurement: enough to tell busy from idle, short beside the rest of the gate."""
_BUSY = 0.5
"""Share of the CPUs that other processes may use without a remark."""


def check(context: Context) -> CheckResult:
    """UNKNOWN when ranks will have to share; never FAIL: a slow job is not a broken one."""
    allowed = len(os.sched_getaffinity(0))
    limit = quota()
    cpus = min(allowed, limit) if limit else allowed
    busy = _busy_share()
    load = os.getloadavg()[0]
    facts = {"cpus": cpus, "busy": round(busy, 2), "load": round(load, 1)}
    observed = f"{cpus:g} CPUs, {busy:.0%} busy, load {load:.1f}"
    ranks = context.plan.nproc_per_node or 1
    wanted = context.plan.resources.cpus
    if wanted and cpus < wanted:
        return _scarce(f"{observed}; the job asks for {wanted:g}", "ranks will be slow", facts)
    if cpus < ranks:
        return _scarce(f"{observed} for {ranks} ranks", "ranks will take turns", facts)
    threads = context.variable("OMP_NUM_THREADS")  # torchrun sets it to 1 where there are several ranks
    if threads.isdigit() and cpus < ranks * int(threads):
        many = f"{ranks} rank{'s' * (ranks > 1)} of {threads} threads"
        return _scarce(f"{observed} for {many}", "threads will take turns: lower OMP_NUM_THREADS", facts)
    if busy > _BUSY and load > _BUSY * cpus:
        return _scarce(
            f"{observed}: others use them", "`top` on that node shows who; ranks will be slow", facts
        )
    return passed("cpu", observed, **facts)


def _scarce(observed: str, hint: str, facts: dict[str, Any]) -> CheckResult:
    return CheckResult("cpu", Status.UNKNOWN, observed, hint=hint, code="cpu-busy", facts=facts)


def quota(folder: str = "/sys/fs/cgroup") -> Optional[float]:
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
