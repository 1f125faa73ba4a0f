"""The start of a node's launch command: its words, its environment, its folder."""

from __future__ import annotations

import os

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.supervise import launch, mpi
from ddplaunch.agent.supervise.crew import Crew
from ddplaunch.agent.supervise.launch import Place


def start(plan: JobPlan, place: Place, node: int, attempt: int, crew: Crew, hook: str) -> None:
    """Raises LaunchError, MissingSecretError, ContractError or OSError. `hook`: name of the hooks' socket."""
    place.prepare()
    agreed = place.agreed()
    words = launch.command(plan, node, attempt, agreed, place.folder)
    env = launch.environment(plan, node, attempt, agreed, place, os.environ)
    crew.candidates.of_mpi = not plan.mpi and mpi.is_launcher(words)
    flags = ["ptrace"] if plan.watchdog.privileges == "ptrace" else []
    if plan.mpi:
        place.expect_keepers(node, attempt, ",".join([hook, *flags]))
        if node != 0:
            return  # node 0 starts the ranks of all nodes
        env = mpi.environment(plan, env)
    else:
        flags += ["mpi"] if crew.launches_mpi else [] if launch.is_torchrun(words) else ["any"]
        env = launch.with_hook(env, place, ",".join([hook, *flags]))
    workdir = plan.workdir or (place.source if os.path.isdir(place.source) else None)
    if plan.mpi and workdir == place.source:
        workdir = place.folder  # MPI's launcher wants it on all nodes; the keepers know their own
    crew.launch = launch.start(words, env, workdir, place.launch_log)
