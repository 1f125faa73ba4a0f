"""Variables for MPI launchers, and the variables by which they number ranks. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Optional

from ddplaunch.agent.contract import JobPlan

_LAUNCHERS = re.compile(r"(mpirun|mpiexec)(\.\w+)?|orterun|prterun|prun|srun")
_RANKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI's mpirun
    ("PMIX_RANK", "SLURM_LOCALID"),  # srun --mpi=pmix
    ("PMI_RANK", "MPI_LOCALRANKID"),  # MPICH and its relatives
    ("PMI_RANK", "SLURM_LOCALID"),  # srun --mpi=pmi2
    ("PMI_RANK", "PMI_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
)
_OF_THE_STEP = re.compile(r"SLURM_(?!JOB_|CONF|PMIX_)|PMI_|PMIX_(?!MCA_)")
"""Prefixes of variables that describe a step and its tasks. The others are settings."""


def numbers(environment: Mapping[str, str]) -> Optional[tuple[int, int]]:
    """Return world rank and local rank by an MPI launcher's variables; None where there are none."""
    for pair in _RANKS:
        rank, local = (environment.get(name, "") for name in pair)
        if rank.isdecimal() and local.isdecimal():
            return int(rank), int(local)
    return None


def is_launcher(words: list[str]) -> bool:
    """Whether the command itself is an MPI launcher."""
    return _LAUNCHERS.fullmatch(os.path.basename(words[0])) is not None


def environment(plan: JobPlan, given: Mapping[str, str]) -> dict[str, str]:
    """Return the MPI launcher's environment, made of `given`, the one for torchrun."""
    defaults = {
        # A rank bound to one core would have its threads and its data loader's workers on it, too.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if "SLURM_JOB_ID" in given:
        # With fewer nodes than TreeWidth, Slurm's other fence does not wait for other nodes (reverse_tree.c,
        # since 21.08). At the end of MPI_Init a rank then sends to one that is not ready, and may crash it.
        defaults["SLURM_PMIX_FENCE"] = "ring"
        return {**defaults, **_outside_of_the_step(plan, given)}
    # The job file has the number of ranks; without a scheduler mpirun would count the cores.
    defaults["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    defaults["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    return {**defaults, **given}


def _outside_of_the_step(plan: JobPlan, given: Mapping[str, str]) -> dict[str, str]:
    """Return Slurm's variables as in the batch script of a job with one task per rank.

    The variables of the supervisor's own step do not fit the step of the MPI launcher: srun would ask for the
    resources of this step, and mpirun would count one slot on each node.
    """
    kept = {name: value for name, value in given.items() if name in plan.env or not _OF_THE_STEP.match(name)}
    return {
        **kept,
        "SLURM_JOBID": given["SLURM_JOB_ID"],
        "SLURM_NODELIST": given.get("SLURM_JOB_NODELIST", ""),
        "SLURM_NNODES": str(plan.nodes),
        "SLURM_TASKS_PER_NODE": f"{plan.nproc_per_node}(x{plan.nodes})",
    }
