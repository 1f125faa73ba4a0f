"""Starts the launch command of a node."""

from __future__ import annotations

import os

from ddplaunch.agent.contract import Env, JobPlan
from ddplaunch.agent.supervisor import launch, mpi_environment
from ddplaunch.agent.supervisor.launch import LaunchContext, LaunchError
from ddplaunch.agent.supervisor.rank_tracker import RankTracker


def start(
    plan: JobPlan, place: LaunchContext, node: int, attempt: int, tracker: RankTracker, hook: str
) -> None:
    """Start the launch command. `hook`: name of the hooks' socket.

    Raises LaunchError, MissingSecretError, ContractError or OSError.
    """
    if plan.outputs and not place.on_volume:  # files of another job may lie in any other folder
        raise LaunchError(
            f"the job's folder in {plan.outputs} is not known: {Env.SUBMISSION} does not name it",
            "what has started this agent is too old to name the job: update it, or leave `outputs` out",
        )
    place.prepare()
    if plan.resume_dir:
        os.makedirs(plan.resume_dir, exist_ok=True)
    agreed = place.agreed()
    words = launch.command(plan, node, attempt, agreed, place.folder)
    env = launch.environment(plan, node, attempt, agreed, place, os.environ)
    tracker.candidates.of_mpi = not plan.keepers and mpi_environment.is_launcher(words)
    flags = ["ptrace"] if plan.watchdog.privileges == "ptrace" else []
    if plan.keepers:
        place.expect_keepers(node, attempt, ",".join([hook, *flags]))
        if node != 0:
            return  # node 0 starts the ranks of all nodes
        env = mpi_environment.environment(plan, env)
    else:
        if place.streams is not None and place.streams.carrier:
            flags.append(f"output={place.streams.carrier}")
        flags += ["mpi"] if tracker.launches_mpi else [] if launch.is_torchrun(words) else ["any"]
        env = launch.with_hook(env, place, ",".join([hook, *flags]))
    workdir = place.workdir(plan)
    if plan.keepers and workdir == place.work:
        workdir = place.folder  # MPI's launcher needs it on all nodes; the keepers change to their own
    tracker.begin(launch.start(words, env, workdir, place.launch_log, place.streams))
