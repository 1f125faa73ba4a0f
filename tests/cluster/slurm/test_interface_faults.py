"""The interface that Gloo takes, on a real cluster: led to the right one if nobody has set it, else told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import GATE_ONLY, names, notes, verdict
from tests.cluster.slurm.jobs import Job


def bridge(cluster: Cluster, node: str) -> None:
    """docker0, to which the node's own name leads. Peers connect to it, for their addresses are higher."""
    for words in (
        "link add docker0 type bridge",
        "addr add 10.0.3.1/24 dev docker0",
        "link set docker0 up",
    ):
        cluster.run(node, ["ip", *words.split()])
    names(cluster, node, **{node: "10.0.3.1"})


def start(cluster: Cluster, work: Path, **keys: Any) -> Job:
    """Three nodes that do not train."""
    return Job.submit(cluster, work, "", GATE_ONLY, nodes=3, **keys)


@pytest.mark.whole
def test_gloo_is_led_past_a_bridge_of_containers(cluster: Cluster, work: Path) -> None:
    """On the one node that needs it; everybody is told why."""
    bridge(cluster, "n2")
    (note,) = notes(start(cluster, work))

    assert note.startswith(
        "GLOO_SOCKET_IFNAME=eth0 is set on node 1 (n2): by itself node 1 (n2)'s Gloo takes docker0"
    )


@pytest.mark.whole
@pytest.mark.fault("gloo-interface-wrong")
def test_a_name_that_is_no_whole_name(cluster: Cluster, work: Path) -> None:
    """As good as it would be for NCCL."""
    code, nodes, found = verdict(start(cluster, work, env={"GLOO_SOCKET_IFNAME": "eth"}))

    assert ("gloo-interface-wrong", [0, 1, 2]) == (code, nodes)
    assert "Gloo finds no interface: GLOO_SOCKET_IFNAME=eth: no interface is called 'eth'" in found.sentence
    assert "Gloo takes whole names only" in found.hint
    notes(start(cluster, work, env={"GLOO_SOCKET_IFNAME": "eth0"}))


@pytest.mark.whole
@pytest.mark.fault("gloo-interface-wrong")
def test_a_bridge_that_was_set_on_purpose(cluster: Cluster, work: Path) -> None:
    """Every node has it, and nobody reaches it."""
    for node in cluster.nodes:
        bridge(cluster, node)
        names(cluster, node)
    code, nodes, found = verdict(start(cluster, work, env={"GLOO_SOCKET_IFNAME": "docker0"}))

    assert ("gloo-interface-wrong", [0, 1, 2]) == (code, nodes)
    assert "takes docker0 10.0.3.1, which" in found.sentence
    assert "eth0 works" in found.sentence
    assert "leave GLOO_SOCKET_IFNAME out" in found.hint
    notes(start(cluster, work))
