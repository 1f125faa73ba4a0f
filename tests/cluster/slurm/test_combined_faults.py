"""Two real faults at once between the nodes of a Slurm job: both are told, or the one says what it hides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import BY_NAME, GATE, GATE_ONLY, MASTER, Start, names
from tests.cluster.slurm.jobs import COME, Job


def told(job: Job) -> list[tuple[str, list[int]]]:
    """What a job that its gate has ended was told, by code and node, in order."""
    job.said("ddplaunch verdict")
    state = job.ended(40)
    print(job.output)
    assert "FAILED" == state
    return [(verdict.code, verdict.nodes) for verdict in job.bundle().verdicts]


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
@pytest.mark.fault("port-filtered")
def test_an_unknown_name_and_a_dropped_port(cluster: Cluster, start: Start) -> None:
    """One node does not know the master's name, another's packets to it vanish. Both are mended in turn."""
    names(cluster, "n3", n1=None)
    cluster.nft("n1", f"ip saddr 10.99.0.12 tcp dport {MASTER} drop")
    job = start(**BY_NAME)

    assert [("dns-not-found", [2]), ("port-filtered", [0])] == told(job)
    assert job.bundle().verdicts[0].facts[-1] == (
        "not checked until the name leads there: whether node 2 (n3) can reach the master"
    )
    names(cluster, "n3")
    assert [("port-filtered", [0])] == told(start(**BY_NAME))
    cluster.run("n1", ["nft", "flush", "ruleset"])
    assert "COMPLETED" == start(GATE_ONLY, **BY_NAME).ended(40)


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_missing_node_hides_a_dropped_port(
    cluster: Cluster, start: Start, task_prolog: Callable[[str], None], work: Path
) -> None:
    """That the paths were not tried is said; when the node comes, so is what is wrong with one of them."""
    cluster.nft("n1", f"ip saddr 10.99.0.12 tcp dport {MASTER} drop")
    task_prolog(f'[ "$SLURMD_NODENAME" != n3 ] || [ -e {work}/mended ] || sleep 120')
    gate: dict[str, Any] = {"port": GATE, "timeout": COME}
    job = start(gate=gate)
    job.said("ddplaunch verdict")

    (missing,) = job.bundle().verdicts
    assert ("node-missing", [2]) == (missing.code, missing.nodes)
    assert missing.facts[-1] == (
        "not checked until node 2 (n3) is here: its own checks, and the paths between the nodes"
    )
    (work / "mended").touch()
    cluster.login(["scancel", str(job.number)])
    job.ended(60)
    assert [("port-filtered", [0])] == told(start())
