"""The record of each scheduler, what a job gets on none of them, and how its nodes are called."""

from __future__ import annotations

import socket

import pytest

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Env, NodeStatus, Verdict
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.platforms import KUBERNETES, PLAIN, SLURM, places
from ddplaunch.agent.system.subjects import node, nodes
from ddplaunch.agent.text.saying import Text, say


@pytest.mark.parametrize("name", ["", "local", "toyqueue"])
def test_a_platform_that_is_not_known_gets_the_advice_for_plain_machines(name: str) -> None:
    assert platforms.named(name) is PLAIN
    assert "ask somebody" == PLAIN.hint("missing", "ask somebody")


@pytest.mark.parametrize("platform", [SLURM, KUBERNETES])
def test_a_schedulers_own_commands_come_first_in_its_advice(platform: platforms.Platform) -> None:
    assert platforms.named(platform.name) is platform
    assert "ask somebody" != platform.hint("missing", "ask somebody")
    assert "ask somebody" == platform.hint("no such kind", "ask somebody")


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
def test_a_machine_is_named_once_where_its_node_is_named_first(said: Text, shown: str) -> None:
    verdict = Verdict.of("node-missing", said, "gate")
    assert shown == verdict.on(W).sentence
    assert verdict.on(W) == verdict.on(W).on({1: "elsewhere"})
    assert verdict.text == verdict.on(W).text


@pytest.mark.parametrize(("machine", "added"), [("w1", " on w1"), ("", ""), (socket.gethostname(), "")])
def test_a_pod_is_named_with_its_machine_but_where_it_has_the_machines_network(
    machine: str, added: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.MACHINE, machine)
    assert socket.gethostname() + added == places.host()


def test_a_node_that_was_not_heard_of_is_on_no_machine() -> None:
    assert {1: "w1"} == places.known_machines(
        [NodeStatus(0, "d-0"), NodeStatus(1, "d-1 on w1"), NodeStatus(2)]
    )


def test_verdicts_of_ranks_name_machines_in_a_line_below() -> None:
    names = [f"d-{node}.d.lab.svc.cluster.local" for node in range(2)]
    verdict = Verdict.of("rank-failed", "rank 1 raised", "run", nodes=[1], ranks=[1])
    lines = verdict_text.block([verdict], True, places.names_with_machines(names, {1: "w1"}))
    assert "    rank 1: on node 1 (d-1 on w1)" in lines
    assert "    rank 1: on node 1 (d-1)" in verdict_text.block(
        [verdict], True, places.names_with_machines(names, {})
    )
