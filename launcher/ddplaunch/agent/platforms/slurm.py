"""Slurm: srun starts one task per node, and reports how each ends."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping
from typing import Any, Optional

from ddplaunch.agent.platforms.platform import Platform
from ddplaunch.agent.platforms.slurm_hints import HINTS

NODE = "SLURM_NODEID"
"""srun's own count of nodes, in the order of the job's node list, which is that of Env.NAMES."""

VERBS = {
    "prolog": "before a job of Slurm: can anything run on this node",
    "epilog": "after a job of Slurm: take away what it left on this node",
    "prologue": "in a batch script of Slurm: the gate, and what to export",
    "comment": "at the end of a job of Slurm: its verdict as Slurm's comment",
}
"""Words of the agent's command line on a node of Slurm, and their help."""


def _set_comment(message: dict[str, Any]) -> None:
    from ddplaunch.agent.platforms import slurm_comment  # which no pod has

    slurm_comment.set_comment(message)


SLURM = Platform(
    "slurm",
    hints=HINTS,
    place="Slurm's comment",
    show=_set_comment,
)


def job_name(environment: Mapping[str, str]) -> str:
    """Return 'Slurm job 771' for a process with that environment; "" without a job."""
    number = environment.get("SLURM_JOB_ID")
    return f"Slurm job {number}" if number else ""


def munge_socket(seconds: float) -> Optional[str]:
    """Return the socket of MUNGE that Slurm is configured to use; None: MUNGE's default."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, timeout=seconds)
        named = re.search(rb"^AuthInfo\s*=.*?\bsocket=([^,\s]+)", shown.stdout, re.MULTILINE)
        return named[1].decode() if named else None
    return None
