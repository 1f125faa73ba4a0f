"""Check: free space in the temporary folder, where torchrun writes its logs, and in the job's folder."""

from __future__ import annotations

import errno
import os
import tempfile

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult, Files
from ddplaunch.agent.system.phrases import size
from ddplaunch.agent.system.processes import TMP

LEAST = 16 << 20
"""Bytes. Logs alone fill less."""
_PROBE = b"\0" * (1 << 16)
_MAY_FAIL = "the trainer may not be able to write there"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def check(context: Context) -> CheckResult:
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
            if error.errno in _FULL:
                return _full(context, f"cannot write to {place}: {error.strerror}", place)
            return unknown("disk", f"{place}: {error.strerror}", _MAY_FAIL)
        free = stat.f_bavail * stat.f_frsize
        if free < LEAST:
            return _full(context, f"{size(free)} free in {place}", place)
        observed.append(f"{size(free)} free in {place}")
    return passed("disk", ", ".join(observed))


def _full(context: Context, observed: str, place: str) -> CheckResult:
    if context.plan.nproc_per_node is None:  # `run`: the user's own command may need no such folder
        return unknown("disk", observed, _MAY_FAIL)
    hint = f"`df -h {place}` on that node; make room there"
    return failed("disk", "disk-full", observed, f"at least {size(LEAST)}", hint, patience=0.0)
