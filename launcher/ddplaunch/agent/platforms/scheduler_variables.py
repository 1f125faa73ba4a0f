"""Reads what the variables of Slurm, of an Indexed Job and of Open MPI say about this process's node.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Env
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.platforms.kubernetes import KUBERNETES
from ddplaunch.agent.platforms.slurm import SLURM

WAYS = "`srun --ntasks-per-node=1`, `mpirun --map-by ppr:1:node` and Indexed Jobs of Kubernetes"
"""Ways to start nodes that set such variables, for the user to read."""


class Fact(NamedTuple):
    """A value, and its source for the user."""

    value: str
    source: str


@dataclass(frozen=True)
class Scheduled:
    """Facts about this process's node. A fact that is not in the environment is None or empty."""

    nodes: Optional[Fact] = None
    node: Optional[Fact] = None
    names: list[str] = field(default_factory=list)
    master: str = ""
    job: str = ""  # the same on all its nodes
    attempt: int = 0
    problems: list[str] = field(default_factory=list)


def read(environment: Mapping[str, str], host: str) -> Scheduled:
    """Return the facts. `host`: this machine's full name; in a pod POD-INDEX.SERVICE.NAMESPACE.svc.DOMAIN."""
    if environment.get("OMPI_COMM_WORLD_RANK"):
        # mpirun starts its daemons with srun, so srun's variables count the daemons.
        return _open_mpi(environment)
    if is_in_step(environment):
        return _slurm(environment)
    if environment.get("JOB_COMPLETION_INDEX"):
        return _indexed_job(environment, host)
    return Scheduled(attempt=_attempt(environment))


def is_slurms(environment: Mapping[str, str]) -> bool:
    """Whether all nodes belong to one Slurm job. On its own node mpirun starts a process without srun."""
    in_mpi = environment.get("OMPI_COMM_WORLD_RANK") and environment.get("SLURM_JOB_ID")
    return bool(in_mpi) or is_in_step(environment)


def platform(environment: Mapping[str, str]) -> str:
    """Return the scheduler by the name that plans use; empty if there is none."""
    if is_slurms(environment):
        return SLURM.name
    return KUBERNETES.name if environment.get("JOB_COMPLETION_INDEX") else ""


def is_in_step(environment: Mapping[str, str]) -> bool:
    """Whether srun has started this process. A batch script has the same variables, but only on one node."""
    return all(environment.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID"))


def _slurm(environment: Mapping[str, str]) -> Scheduled:
    nodes = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES", "")
    tasks = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", nodes)
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    problems = []
    if tasks != nodes:
        problems.append(f"srun starts {tasks} tasks on {nodes} nodes, where it takes --ntasks-per-node=1")
    try:
        names = slurm.expand_nodes(listed)
    except ValueError:
        names = []
    return Scheduled(
        nodes=Fact(nodes, f"SLURM_STEP_NUM_NODES={nodes}") if nodes else None,
        node=Fact(environment["SLURM_NODEID"], f"SLURM_NODEID={environment['SLURM_NODEID']}"),
        names=names,
        master=names[0] if names else "",
        job=f"slurm {environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}",
        attempt=_attempt(environment),
        problems=problems,
    )


def _indexed_job(environment: Mapping[str, str], host: str) -> Scheduled:
    """Return the facts of a pod of an Indexed Job: its index, and node 0's name from a headless Service."""
    index = environment["JOB_COMPLETION_INDEX"]
    pod, _, domain = host.partition(".")
    named = bool(domain) and pod.endswith(f"-{index}")
    return Scheduled(
        node=Fact(index, f"JOB_COMPLETION_INDEX={index}"),
        master=f"{pod[: -len(index)]}0.{domain}" if named else "",
        attempt=_attempt(environment),
    )


def _open_mpi(environment: Mapping[str, str]) -> Scheduled:
    rank, size = environment["OMPI_COMM_WORLD_RANK"], environment.get("OMPI_COMM_WORLD_SIZE", "")
    beside = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    problems = []
    if beside != "1":
        problems.append(f"mpirun starts {beside} processes on this node, where it takes --map-by ppr:1:node")
    names = _in_order(environment, rank, size)
    slurms = environment.get("SLURM_JOB_ID", "")
    return Scheduled(
        nodes=Fact(size, f"OMPI_COMM_WORLD_SIZE={size}") if size else None,
        node=Fact(rank, f"OMPI_COMM_WORLD_RANK={rank}"),
        names=names,
        master=names[0] if names else "",
        job=" ".join(filter(None, [slurms and f"slurm {slurms}", environment.get("PMIX_NAMESPACE")])),
        attempt=_attempt(environment),
        problems=problems,
    )


def _in_order(environment: Mapping[str, str], rank: str, size: str) -> list[str]:
    """Return the nodes by rank, if mpirun takes those of Slurm's job in their order; otherwise empty.

    A process can check that only for its own node.
    """
    try:
        names = slurm.expand_nodes(environment.get("SLURM_JOB_NODELIST", ""))
        here = names.index(environment.get("SLURMD_NODENAME", ""))
        return names[: int(size)] if here == int(rank) else []
    except ValueError:
        return []


def _attempt(environment: Mapping[str, str]) -> int:
    """Return how often the scheduler has restarted the job."""
    value = environment.get(Env.ATTEMPT) or environment.get("SLURM_RESTART_COUNT") or "0"
    return int(value) if value.isdecimal() else 0
