"""Check: how much memory the node or the container has, and how much is free."""

from __future__ import annotations

from ddplaunch.agent.checks.context import Context, failed, passed
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.evidence import cgroup
from ddplaunch.agent.system.phrases import size

_TOLERANCE = 0.95
"""A machine sold with 64 GiB shows 62.7, without the share of firmware and kernel."""


def check(context: Context) -> CheckResult:
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
    if wanted and total < wanted * _TOLERANCE:
        return failed(
            "memory",
            "memory-too-small",
            f"{where} has {size(total)} of memory",
            wanted=size(wanted),
            hint="ask for less (`resources.memory`) or for larger nodes",
            **facts,
        )
    if wanted and machine["MemAvailable"] < wanted * _TOLERANCE:
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
