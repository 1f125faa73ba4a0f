"""Check: shared memory, where NCCL and DataLoader workers put tensors. Containers have 64 MiB by default."""

from __future__ import annotations

import os

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.system.phrases import size

_CONTAINER_DEFAULT = 64 << 20
_TOLERANCE = 0.95
"""Share of the requested size: "1 GB" and "1 GiB" are 7 % apart, and a page more or less is no fault."""
_HINT = (
    "in the job file: `resources.shm`; Docker: --shm-size; a machine: `mount -o remount,size=SIZE /dev/shm`"
)


def check(context: Context, folder: str = "/dev/shm") -> CheckResult:  # noqa: S108 - that is its place
    """FAIL when there is less than the job file asks for: the trainer's own need is unknown."""
    wanted = context.plan.resources.shm
    try:
        stat = os.statvfs(folder)
    except OSError as error:
        if wanted:
            return failed("shm", "shm-too-small", f"{folder}: {error.strerror}", size(wanted), _HINT)
        return unknown("shm", f"{folder}: {error.strerror}", _HINT)
    total, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    observed = f"{folder} is {size(total)}, {size(free)} free"
    facts = {"total": total, "free": free}
    if wanted and total < wanted * _TOLERANCE:
        return failed("shm", "shm-too-small", f"{folder} is {size(total)}", size(wanted), _HINT, **facts)
    if wanted and free < wanted * _TOLERANCE:
        return unknown("shm", f"{observed}, the job asks for {size(wanted)}", "others fill it", **facts)
    if not wanted and total <= _CONTAINER_DEFAULT and (context.plan.nproc_per_node or 2) > 1:
        return unknown("shm", observed, f"DataLoader workers and NCCL may need more; {_HINT}", **facts)
    return passed("shm", observed, **facts)
