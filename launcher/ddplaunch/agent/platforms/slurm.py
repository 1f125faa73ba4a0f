"""Slurm: srun starts one task per node, and reports how each ends."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Optional

from ddplaunch.agent.platforms.platform import Ends, Platform
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


_ASK = 2.0
"""Seconds for the controller to say who ends the job. The hub asks once, when evidence is on its way."""


def ended_by() -> str:
    """Return who ends this job, by its state. Which user has called scancel only accounting knows, later."""
    return _ender(_job())


def ends_in() -> Optional[Ends]:
    """Return when Slurm ends this job, by its limit or for another job; None: it does not say."""
    job = _job()
    with contextlib.suppress(ValueError):
        end = datetime.datetime.fromisoformat(job.get("EndTime", "")).timestamp()
        preempted = job.get("PreemptTime", "None") != "None"
        what = "a job of higher priority gets its nodes" if preempted else "the time limit"
        return Ends(end - time.time(), what)
    return None


def _job() -> dict[str, str]:
    """Return what the controller says of this job; {} where it does not answer."""
    number = os.environ.get("SLURM_JOB_ID", "")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        words = ["scontrol", "--oneliner", "show", "job", number]
        shown = subprocess.run(words, capture_output=True, text=True, timeout=_ASK) if number else None
        return dict(re.findall(r"(?<!\S)(\w+)=(\S*)", shown.stdout)) if shown else {}
    return {}


def _ender(job: Mapping[str, str]) -> str:
    state, reason = job.get("JobState", ""), job.get("Reason", "")
    if "TIMEOUT" in state or reason == "TimeLimit":
        return "Slurm, at its time limit"
    if "DEADLINE" in state or reason == "DeadLine":
        return "Slurm, at its deadline"
    if "PREEMPTED" in state or job.get("PreemptTime", "None") != "None":
        return "Slurm, for a job of higher priority"
    if job.get("Requeue") == "1" and state in ("PENDING", "REQUEUED"):
        return "Slurm, which puts it back into the queue"
    return "scancel" if state in ("CANCELLED", "COMPLETING") else ""


def _set_comment(message: dict[str, Any]) -> None:
    from ddplaunch.agent.platforms import slurm_comment  # which no pod has

    slurm_comment.set_comment(message)


SLURM = Platform(
    "slurm",
    hints=HINTS,
    place="Slurm's comment",
    show=_set_comment,
    ended_by=ended_by,
    ends_in=ends_in,
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
