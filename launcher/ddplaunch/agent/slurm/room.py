"""Checks the space for the next job, in shared memory and in temporary folders."""

from __future__ import annotations

import os
import tempfile

from ddplaunch.agent.checks.disk import LEAST
from ddplaunch.agent.system.phrases import size

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - that is its place
TEMPORARY = "/tmp"  # noqa: S108 - likewise
KEPT_LONGER = "/var/tmp"  # noqa: S108 - likewise
_PROBE = b"\0" * (1 << 16)


def lacking(place: str) -> str:
    """Return what is wrong with the folder; "" when a job can run."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(_PROBE)
            file.flush()
        stat = os.statvfs(place)
    except OSError as error:
        return f"cannot write to {place}: {error.strerror}"
    free = stat.f_bavail * stat.f_frsize
    return "" if free >= LEAST else f"{size(free)} free in {place}"
