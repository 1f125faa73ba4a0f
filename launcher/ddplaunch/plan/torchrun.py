"""torchrun's command line. Nothing else in ddplaunch knows its flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def launch(spec: JobSpec) -> list[str]:
    """The words before the user's command, with the placeholders of `contract.JobPlan`.

    `python -m torch.distributed.run` rather than `torchrun`: the script may be on no PATH, or be another
    environment's.
    """
    words = [
        "{python}",
        "-m",
        "torch.distributed.run",
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={spec.nproc_per_node}",
        f"--max-restarts={spec.rendezvous.max_restarts}",
        *_rendezvous(spec),
    ]
    script = spec.command[0]
    if script != "-m" and not script.endswith(".py"):
        words.append("--no-python")
    return words


def _rendezvous(spec: JobSpec) -> list[str]:
    seconds = max(1, round(spec.rendezvous.timeout))
    if spec.rendezvous.backend == "static":
        return [
            "--node-rank={node}",
            "--master-addr={master_addr}",
            "--master-port={master_port}",
            f"--rdzv-conf=timeout={seconds}",
        ]
    # is_host is said outright: torchrun's own guess compares host names and is often wrong (pytorch#73656).
    return [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint={master_addr}:{master_port}",
        "--rdzv-id={run_id}",
        f"--rdzv-conf=join_timeout={seconds},is_host={{is_host}}",
    ]
