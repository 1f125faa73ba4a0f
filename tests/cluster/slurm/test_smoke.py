"""The gate's smoke test on a real cluster: real ranks of torch on its nodes, in the steps of a real job."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import GATE_ONLY
from tests.cluster.slurm.jobs import Job

KEYS = {"nodes": 3, "resources": {"memory": "3Gi"}, "gate": {"smoke_test": True, "skip": ["mesh"]}}
SECONDS = 90
"""For torch to be imported on a busy machine, three times."""


@pytest.mark.whole
@pytest.mark.fault("memory-too-small")
def test_memory_that_does_not_hold_torch(cluster: Cluster, work: Path) -> None:
    """The kernel kills ranks that have not even imported it; with what the hint says they add up."""
    keys = {"nodes": 1, "nproc_per_node": 4, "gate": {"smoke_test": True, "skip": ["memory"]}}
    job = Job.submit(cluster, work, "", GATE_ONLY, **keys, resources={"memory": "350Mi"})

    print(job.ended(SECONDS), job.output)
    assert ("memory-too-small", [0]) == (job.verdict.code, job.verdict.nodes)
    assert "got SIGKILL while importing torch" in job.verdict.sentence

    job = Job.submit(cluster, work, "", GATE_ONLY, **keys, resources={"memory": "3Gi"})
    assert "COMPLETED" == job.ended(SECONDS), job.output


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_ports_between_two_nodes_are_closed(cluster: Cluster, work: Path) -> None:
    """Nothing but the smoke test looks at them; when the firewall lets them through, all ranks add up."""
    cluster.nft("n2", "ip saddr 10.99.0.13 tcp dport 32768-60999 drop")
    job = Job.submit(cluster, work, "", GATE_ONLY, **KEYS)

    assert "FAILED" == job.ended(SECONDS), job.output
    assert ("port-filtered", [1]) == (job.verdict.code, job.verdict.nodes)
    assert "node 2 (n3) -> node 1 (n2): rank 2 connects to 10.99.0.12 in vain" in job.verdict.sentence
    assert "open all TCP ports between the nodes" in job.verdict.hint

    cluster.run("n2", ["nft", "flush", "ruleset"])
    job = Job.submit(cluster, work, "", GATE_ONLY, **KEYS)
    assert "COMPLETED" == job.ended(SECONDS), job.output
    assert "smoke test: gloo all_reduce of 3 ranks: 4 B to 16 MiB in " in job.output
