"""torchrun's command line. Nothing else in ddplaunch knows its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def launch(job: Mapping[str, Any]) -> list[str]:
    """Return the words before the user's command, with the placeholders of `contract.JobPlan`.

    `python -m torch.distributed.run` rather than `torchrun`: the script may be on no PATH, or be another
    environment's.
    """
    words = [
        "{python}",
        "-m",
        "torch.distributed.run",
        "--nnodes={nnodes}" if job.get("min_nodes") else f"--nnodes={job['nodes']}",
        f"--nproc-per-node={job['nproc_per_node']}",
        f"--max-restarts={job['rendezvous']['max_restarts']}",
        *_rendezvous(job["rendezvous"]),
    ]
    script = job["command"][0]
    if script != "-m" and not script.endswith(".py"):
        words.append("--no-python")
    return words


def _rendezvous(rendezvous: Mapping[str, Any]) -> list[str]:
    seconds = max(1, round(rendezvous["timeout"]))
    if rendezvous["backend"] == "static":
        return [
            "--node-rank={node}",
            "--master-addr={master_addr}",
            "--master-port={master_port}",
            f"--rdzv-conf=timeout={seconds}",
        ]
    # is_host is given: torchrun's own guess compares host names and is often wrong (pytorch#73656).
    return [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint={master_addr}:{master_port}",
        "--rdzv-id={run_id}",
        f"--rdzv-conf=join_timeout={seconds},is_host={{is_host}}",
    ]
