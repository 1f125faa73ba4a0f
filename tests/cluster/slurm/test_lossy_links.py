"""Links that lose packets: none of them is called a firewall, and what gets through is let through."""

from __future__ import annotations

import pytest
from tests.cluster.slurm import gate_jobs as gate
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import Start

_start = gate._start


@pytest.mark.fault("network-lossy")
def test_a_link_that_lets_little_through(cluster: Cluster, start: Start) -> None:
    """As a policer does, or a duplex that one end has wrong: all connects, nothing large arrives."""
    rule = "ip saddr 10.99.0.12 tcp dport 1024-60999 limit rate over 2 kbytes/second burst 12 kbytes drop"
    cluster.nft("n3", rule)

    code, nodes, found = gate.verdict(start(gate={"timeout": "120s"}))
    assert ("network-lossy", [1, 2]) == (code, nodes)
    assert "`ip -s link` and `ethtool -S` on both nodes" in found.hint
    gate.flush(cluster, "n3")
    gate.mended(start)


@pytest.mark.whole
def test_a_link_that_loses_packets(cluster: Cluster, start: Start) -> None:
    """It is slow, and no firewall: the gate passes, or says what it is."""
    cluster.nft("n2", "numgen random mod 100 < 30 drop")
    job = start(gate.GATE_ONLY, gate={"timeout": "120s"})

    job.ended(60)
    print(job.output)
    for found in job.bundle().verdicts:
        assert "network-lossy" == found.code
        assert 1 in found.nodes
