"""Says whether jobs can be sent to Slurm from this machine, without asking it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def here(_: JobSpec) -> str:
    """Return why jobs can be sent from here; "" when there is no sbatch."""
    return "sbatch is on PATH" if shutil.which("sbatch") else ""
