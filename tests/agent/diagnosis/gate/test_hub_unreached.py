"""What a node says that cannot reach the hub: the one verdict it gives alone."""

from __future__ import annotations

import pytest
from tests.agent.diagnosis.gate.check_ins import PLAN, only

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.hub_unreached import by_cause, seen_by_hub, unreached
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.agent.transport.endpoints import Endpoint


@pytest.mark.parametrize(
    ("kind", "code", "nodes"),
    [
        ("not-found", "dns-not-found", [1]),
        ("unanswered", "dns-unanswered", [1]),
        ("refused", "port-refused", [0]),
        ("timeout", "port-filtered", [1]),
        ("rejected", "port-rejected", [1]),
        ("unreachable", "host-unreachable", [1]),
        ("family", "ip-family-mixed", [1]),
        ("reset", "stranger-listens", [0]),
        ("stranger", "stranger-listens", [0]),
        ("shared", "store-shared", [0]),
        ("key", "key-differs", [0, 1]),
        ("gone", "node-missing", [0]),
    ],
)
def test_every_way_to_fail(kind: str, code: str, nodes: list[int]) -> None:
    """Each kind of failure has its code, its culprit and a hint."""
    verdict = unreached(1, Endpoint("n0", 29400), ["10.0.0.5"], kind, "detail", 12.0)

    assert (code, nodes) == (verdict.code, verdict.nodes)
    assert verdict.code in CATALOGUE
    assert verdict.hint


def test_a_hub_on_loopback_is_a_wrong_name() -> None:
    """A node other than 0 that is sent to itself has a wrong hosts file, not a closed port."""
    verdict = unreached(1, Endpoint("n0", 29400), ["127.0.1.1"], "refused", "Connection refused", 4.0)

    assert verdict.code == "master-is-loopback"
    assert verdict.sentence == "node 1 resolves n0 to 127.0.1.1, which is node 1 itself"


def test_node_zero_on_loopback_has_no_hub() -> None:
    """On node 0 itself loopback is right, and a refusal means that the hub is not up."""
    assert unreached(0, Endpoint("n0", 29400), ["127.0.0.1"], "refused", "", 9.0).code == "port-refused"


def test_a_hub_that_hears_of_a_refusal_listens() -> None:
    """Then a firewall refuses, and nobody need look for the hub."""
    refused = unreached(1, Endpoint("10.0.0.5", 29400), ["10.0.0.5"], "refused", "Connection refused", 4.0)
    silent = unreached(1, Endpoint("10.0.0.5", 29400), ["10.0.0.5"], "filtered", "timed out", 4.0)

    heard = seen_by_hub(UnreachedReport(1, 4.0, refused, "10.0.0.5:29400"))
    assert heard.code == "port-rejected"
    assert heard.sentence == (
        "node 1 -> the hub at 10.0.0.5:29400 refused for 4 s although it listens: something on the way "
        "rejects this port"
    )
    assert seen_by_hub(UnreachedReport(1, 4.0, silent)) == silent


def report(node: int, code: str, culprit: int) -> Verdict:
    """What a node says."""
    return Verdict.of(code, f"node {node}: {code}", "gate", [node if culprit < 0 else culprit], facts=["why"])


def test_each_cause_is_told_once() -> None:
    """In the words of the first who says it, with what the others say, and all whom they name."""
    said = {
        3: report(3, "port-filtered", -1),
        2: report(2, "dns-not-found", -1),
        1: report(1, "port-filtered", -1),
        4: report(4, "port-refused", 0),
        5: report(5, "port-refused", 0),
    }
    found = by_cause(said)

    assert [
        ([1, 3], "port-filtered", [1, 3], "node 1: port-filtered (and 1 more)"),
        ([2], "dns-not-found", [2], "node 2: dns-not-found"),
        ([4, 5], "port-refused", [0], "node 4: port-refused (and 1 more)"),
    ] == [(who, each.code, each.nodes, each.sentence) for who, each in found]
    assert [["why", "node 3: port-filtered"], ["why"]] == [each.facts for _, each in found[:2]]
    assert ["why"] == said[1].facts


def test_of_a_thousand_a_few_are_facts() -> None:
    """Nobody reads them all; who they are is told."""
    ((who, verdict),) = by_cause({node: report(node, "port-filtered", -1) for node in range(1, 1001)})

    assert who == verdict.nodes == [*range(1, 1001)]
    assert (8, "(and 999 more)") == (len(verdict.facts), verdict.sentence[-14:])


@pytest.mark.parametrize(
    ("said", "nodes"),
    [
        ({1: report(1, "port-filtered", -1), 2: report(2, "port-filtered", -1)}, [0]),
        ({1: report(1, "port-filtered", -1)}, [1]),  # node 2 is here, or nothing is heard of it
        ({1: report(1, "node-missing", -1), 2: report(2, "node-missing", -1)}, [1, 2]),  # ended by themselves
    ],
)
def test_when_nobody_reaches_the_hub_its_node_is_at_fault(said: dict[int, Verdict], nodes: list[int]) -> None:
    """If all others come in vain, and for the same reason."""
    assert nodes == only(decide.judge(GateView(PLAN, {}, unreached=said))).nodes
