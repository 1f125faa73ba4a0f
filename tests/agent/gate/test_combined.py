"""Two real faults at once: both are told, or the one says what it hides, which is told when it is mended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.gate.clusters import MASTER_PORT, MakeCluster
from tests.agent.gate.jobs import COME

from ddplaunch.agent.contract import GatePlan, Verdict


def brief(verdicts: list[Verdict]) -> list[tuple[str, list[int]]]:
    """By code and node."""
    return [(verdict.code, verdict.nodes) for verdict in verdicts]


@pytest.mark.whole
def test_a_missing_node_hides_a_dropped_port_and_the_verdict_says_so(cluster: MakeCluster) -> None:
    trial = cluster(3, master_addr=None, gate={"timeout": COME})
    trial.hosts[0].firewall(f"ip saddr 10.77.0.2 tcp dport {MASTER_PORT} drop")
    trial.start(0, 1)

    (missing,) = trial.refuses()
    assert ("node-missing", [2]) == (missing.code, missing.nodes)
    assert missing.facts[-1] == (
        "not checked until node 2 (n2) is here: its own checks, and the paths between the nodes"
    )

    trial.plan = replace(trial.plan, gate=GatePlan(timeout=300.0))
    trial.again()
    assert [("port-filtered", [0])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.fault("port-in-use")
@pytest.mark.fault("port-filtered")
def test_while_a_port_is_held_the_ways_to_other_ports_are_tried(cluster: MakeCluster) -> None:
    trial = cluster(3, master_addr=None)
    trial.hosts[2].firewall("ip saddr 10.77.0.2 drop")
    trial.hold(MASTER_PORT)

    found = trial.refuses()
    assert [("port-in-use", [0]), ("port-filtered", [1, 2])] == brief(found)
    assert "not checked until the port is free: whether the other nodes reach it" == found[0].facts[-1]
