"""Options and variables that torchrun and MPI's launchers get from us, and those by which they give ranks
their numbers. Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Optional

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.system.torchrun import C10D, STATIC, torchrun_options


def missing_variables(
    command: Sequence[str],
    environment: Mapping[str, str],
    node: int,
    nodes: int,
    address: str,
    port: int,
) -> dict[str, str]:
    """Return variables with which torchrun on node `node` meets the others. The user's own override them.

    A command that is not torchrun gets only MASTER_ADDR and MASTER_PORT: a script may call torchrun several
    times, and not always for all nodes.
    """
    result = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    given = torchrun_options(command)
    if given is None:
        return result
    result["PET_NNODES"] = str(nodes)
    backend = given.get("rdzv_backend") or environment.get("PET_RDZV_BACKEND") or STATIC
    if backend == STATIC:
        result.update(PET_NODE_RANK=str(node), PET_MASTER_ADDR=address, PET_MASTER_PORT=str(port))
    elif backend == C10D and not (given.get("rdzv_endpoint") or environment.get("PET_RDZV_ENDPOINT")):
        host = f"[{address}]" if ":" in address else address
        # torchrun itself guesses from names whether it is the host, and is often wrong (pytorch#73656).
        result.update(PET_RDZV_ENDPOINT=f"{host}:{port}", PET_RDZV_CONF=f"is_host={int(node == 0)}")
    return result


def least_nodes(command: Sequence[str], environment: Mapping[str, str]) -> Optional[int]:
    """Return with how few nodes torchrun goes on, if its agents decide that themselves; None otherwise."""
    given = torchrun_options(command)
    if given is None:
        return None
    backend = given.get("rdzv_backend") or environment.get("PET_RDZV_BACKEND") or STATIC
    least = (given.get("nnodes") or environment.get("PET_NNODES") or "1").partition(":")[0]
    return int(least) if backend != STATIC and least.isdecimal() else None


# --- MPI's launchers

_MPI_LAUNCHERS = re.compile(r"(mpirun|mpiexec)(\.\w+)?|orterun|prterun|prun|srun")
_MPI_RANKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI's mpirun
    ("PMIX_RANK", "SLURM_LOCALID"),  # srun --mpi=pmix
    ("PMI_RANK", "MPI_LOCALRANKID"),  # MPICH and its relatives
    ("PMI_RANK", "SLURM_LOCALID"),  # srun --mpi=pmi2
    ("PMI_RANK", "PMI_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
)
_OF_THE_STEP = re.compile(r"SLURM_(?!JOB_|CONF|PMIX_)|PMI_|PMIX_(?!MCA_)")
"""Prefixes of variables that describe a step and its tasks. The other variables are settings."""


def mpi_numbers(environment: Mapping[str, str]) -> Optional[tuple[int, int]]:
    """Return world rank and local rank from an MPI launcher's variables; None if there are none."""
    for pair in _MPI_RANKS:
        rank, local = (environment.get(name, "") for name in pair)
        if rank.isdecimal() and local.isdecimal():
            return int(rank), int(local)
    return None


def is_mpi_launcher(words: list[str]) -> bool:
    """Whether the command itself is an MPI launcher."""
    return _MPI_LAUNCHERS.fullmatch(os.path.basename(words[0])) is not None


def mpi_launcher_environment(plan: JobPlan, given: Mapping[str, str]) -> dict[str, str]:
    """Return the MPI launcher's environment, made from `given`, the one for torchrun."""
    defaults = {
        # If a rank were bound to one core, its threads and its data loader's workers would be on that core
        # too.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if "SLURM_JOB_ID" in given:
        # With fewer nodes than TreeWidth, Slurm's other fence does not wait for other nodes (reverse_tree.c,
        # since 21.08). At the end of MPI_Init a rank then sends to one that is not ready, and may crash it.
        defaults["SLURM_PMIX_FENCE"] = "ring"
        return {**defaults, **_outside_step(plan, given)}
    # The job file has the number of ranks. Without a scheduler, mpirun would count the cores.
    defaults["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    defaults["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    return {**defaults, **given}


def _outside_step(plan: JobPlan, given: Mapping[str, str]) -> dict[str, str]:
    """Return Slurm's variables as in the batch script of a job with one task per rank.

    The variables of the supervisor's own step do not fit the MPI launcher's step: srun would ask for the
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
