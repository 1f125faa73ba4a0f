"""Pods are on machines, and people mend machines."""

from __future__ import annotations

import socket

import pytest

from ddplaunch.agent.contract import Env, NodeStatus, Verdict
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.platforms import places
from ddplaunch.agent.system.subjects import node, nodes
from ddplaunch.agent.text.saying import Text, say

D = ["d-0", "d-1", "d-2", "d-3"]
W = {0: "w0", 1: "w1", 2: "w2"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (say(node(1, D), " cannot resolve d-0"), "node 1 (d-1 on w1) cannot resolve d-0"),
        (
            say(node(0, D), " -> ", node(1, D, "10.1.2.3")),
            "node 0 (d-0 on w0) -> node 1 (d-1 on w1, 10.1.2.3)",
        ),
        (say(nodes([0, 2], D), ": ", node(0, D)), "nodes 0 (d-0 on w0) and 2 (d-2 on w2): node 0 (d-0)"),
        (say(node(3, D), " has no machine, eth0 1 (eth0)"), "node 3 (d-3) has no machine, eth0 1 (eth0)"),
    ],
)
def test_a_machine_is_named_where_its_node_is_named_first(said: Text, shown: str) -> None:
    """Whoever has to mend it needs the machine; a second time it would be noise."""
    verdict = Verdict.of("node-missing", said, "gate")
    assert shown == verdict.on(W).sentence
    assert verdict.on(W) == verdict.on(W).on({1: "elsewhere"})
    assert verdict.text == verdict.on(W).text


@pytest.mark.parametrize(("machine", "added"), [("w1", " on w1"), ("", ""), (socket.gethostname(), "")])
def test_a_host_is_a_pod_on_a_machine(machine: str, added: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere it is the machine itself, as for a pod that has its machine's network."""
    monkeypatch.setenv(Env.MACHINE, machine)
    assert socket.gethostname() + added == places.host()


def test_only_who_was_heard_of_is_known_to_be_somewhere() -> None:
    """A node's status begins with its name alone."""
    assert {1: "w1"} == places.known_machines(
        [NodeStatus(0, "d-0"), NodeStatus(1, "d-1 on w1"), NodeStatus(2)]
    )


def test_ranks_are_on_machines_too() -> None:
    """Their verdicts speak of ranks, and a line below says where these are."""
    names = [f"d-{node}.d.lab.svc.cluster.local" for node in range(2)]
    verdict = Verdict.of("rank-failed", "rank 1 raised", "run", nodes=[1], ranks=[1])
    lines = verdict_text.block([verdict], True, places.names_with_machines(names, {1: "w1"}))
    assert "    rank 1: on node 1 (d-1 on w1)" in lines
    assert "    rank 1: on node 1 (d-1)" in verdict_text.block(
        [verdict], True, places.names_with_machines(names, {})
    )
