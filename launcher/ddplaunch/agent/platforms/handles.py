"""The handle of a job, as its own nodes know it: what `ddplaunch submit` has printed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ddplaunch.agent.contract import Env, JobPlan
from ddplaunch.agent.platforms.kubernetes import KUBERNETES
from ddplaunch.agent.platforms.slurm import SLURM


def handle(plan: JobPlan, folder: str, environment: Mapping[str, str]) -> str:
    """Return `target://path`; "" where nothing here says it."""
    if plan.platform == KUBERNETES.name:
        path = os.path.join(environment.get(Env.NAMESPACE, ""), plan.job)
        return f"kubernetes://{path}" if environment.get(Env.NAMESPACE) else ""
    if plan.platform == SLURM.name:
        number = environment.get("SLURM_JOB_ID")
        return f"slurm://{number}" if number else ""
    name, number = os.path.split(os.path.abspath(folder))
    is_ours = os.path.basename(name) == plan.job and number.isdigit()
    return f"local://{plan.job}/{number}" if is_ours else ""
