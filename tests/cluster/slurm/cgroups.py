"""Slurm's control groups on this machine: all clusters share them, and differ in the ids of their jobs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

from tests.busy import BUSY

_ROOT = Path("/sys/fs/cgroup")
_SPAN = 10_000
"""Job ids of one cluster."""
_HIGHEST = 67_000_000  # Slurm's own limit is 0x03FF0000


def usable() -> bool:
    """Whether Slurm 22.05 can track processes and limit memory here: version 1, mounted for writing."""
    return all(os.access(_ROOT / kind / "release_agent", os.W_OK) for kind in ("freezer", "memory"))


def first_job(taken: Iterable[int]) -> int:
    """Where the ids of a new cluster's jobs begin. `taken`: where those of others do."""
    spans = {*range(1, _HIGHEST // _SPAN)} - {first // _SPAN for first in taken}
    return int(secrets.choice(sorted(spans))) * _SPAN + 1


def remove(first: int, seconds: float = 5.0) -> None:
    """Take away what a dead cluster's jobs left, and the nodes' groups where no other cluster uses them."""
    jobs = [group for group in _ROOT.glob("*/slurm_n*/uid_*/job_*") if _belongs(group.name, first)]
    deadline = time.monotonic() + BUSY * seconds
    # Bottom up; the kernel may still be burying what ran there.
    while any(_remove(group) for group in jobs) and time.monotonic() < deadline:
        time.sleep(0.02)
    for controller in {group.parent for group in _ROOT.glob("*/slurm_n*")}:
        _remove_nodes(controller)


def _remove_nodes(controller: Path) -> None:
    """Under Slurm's own lock, for it makes these groups one by one when a job of another cluster starts."""
    root = os.open(controller, os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX)
        for pattern in ("slurm_n*/uid_*", "slurm_n*/system", "slurm_n*"):
            for group in controller.glob(pattern):
                with contextlib.suppress(OSError):
                    group.rmdir()
    finally:
        os.close(root)


def _belongs(name: str, first: int) -> bool:
    number = name.removeprefix("job_")
    return number.isdigit() and first <= int(number) < first + _SPAN


def _remove(group: Path) -> bool:
    """True when something is left of it."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return group.exists()
