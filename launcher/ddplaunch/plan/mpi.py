"""What starts MPI ranks: mpirun, or srun with its PMI. Nothing else in the launcher knows their flags.

It runs on node 0 alone and puts `nproc_per_node` ranks on every node, in the order of the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def launch(spec: JobSpec, target: str) -> list[str]:
    """The words before the user's command, with the placeholders of `contract.JobPlan`.

    How many ranks, and no more: mappings, bindings and transports are spelled differently by every MPI, and
    are set by its variables (agent/supervisor/mpi_environment.py, or the job file's `env`).
    """
    world = spec.nodes * spec.nproc_per_node
    words = ["mpirun", "-n", str(world)]
    if target == "slurm" and spec.slurm.mpi is not None:
        words = [
            "srun",
            f"--mpi={spec.slurm.mpi}",
            f"--nodes={spec.nodes}",
            f"--ntasks={world}",
            f"--ntasks-per-node={spec.nproc_per_node}",
            f"--cpus-per-task={_cores_of_a_rank(spec)}",
            "--distribution=block",
            "--kill-on-bad-exit=1",
        ]
    script = spec.command[0]
    return [*words, "{keeper}", *(["{python}"] if script == "-m" or script.endswith(".py") else [])]


def _cores_of_a_rank(spec: JobSpec) -> int:
    """Its share of the node's, which the job has asked for."""
    return max(1, int(spec.resources.cpus or 0) // spec.nproc_per_node)
