"""Which gates are listened to, and what becomes of what they say: tests/cluster does it on a cluster."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.backends.kubernetes.gate_jobs import DIGITS, pod, report, seen, status, verdict

from ddplaunch.agent.contract import Phase, Verdict
from ddplaunch.agent.system.subjects import node
from ddplaunch.agent.text.saying import say
from ddplaunch.backends.kubernetes import evidence, node_status, outcomes, pods
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.evidence import GateReport, GateReports


def numbers(pods: list[dict[str, Any]]) -> list[str]:
    """Their machines tell them apart."""
    return [each["spec"]["nodeName"] for each in pods]


def test_only_those_are_listened_to_whom_the_hub_does_not_know() -> None:
    """A job that all have come to costs nothing, nor one whose hub is not up yet."""
    pods = pod(0), pod(1), pod(2, gate="waiting")
    ours = seen(*pods)
    assert ["worker1"] == numbers(
        evidence.unknown_to_hub(ours, status(Phase.GATE, Phase.STARTING, Phase.STARTING))
    )
    assert ["worker0", "worker1"] == numbers(evidence.unknown_to_hub(ours, None))
    assert [] == evidence.unknown_to_hub(ours, status(Phase.GATE, Phase.GATE, Phase.STARTING))
    assert [] == evidence.unknown_to_hub(seen(pod(0, hub="waiting"), pod(1)), None)
    assert [] == evidence.unknown_to_hub(seen(pod(1)), None)


def test_afterwards_those_that_gave_up() -> None:
    """One that was deleted, or never began, has no log."""
    ours = seen(pod(0, gate="terminated"), pod(1, gate="terminated"), pod(2, gate="waiting"))
    assert ["worker1"] == numbers(evidence.failed_gates(ours, {1, 2, 3}))


def _heard(*found: GateReport) -> GateReports:
    those = GateReports(Api())
    for each in found:
        name = f"digits-{each.report.node}-x"
        those._last[name] = those._first[name, each.report.verdict.code] = each
    return those


def test_nodes_with_the_same_trouble_are_told_together() -> None:
    """In the words of the first, with the pods and machines of all."""
    ours = seen(pod(0), pod(1), pod(2), pod(3))
    those = _heard(report(1), report(2), report(3, "port-filtered")).problems(ours.pods)
    assert ours.job is not None
    nodes = [
        each._replace(problem=those.get(each.number)) for each in node_status.nodes(ours.job, ours.pods, [])
    ]
    found = outcomes.verdicts(ours, node_status.troubled(nodes), {})
    assert [
        (
            "dns-not-found",
            [1, 2],
            "nodes 1-2 (pods digits-1-x on worker1, digits-2-x on worker2) cannot resolve x",
        ),
        ("port-filtered", [3], "node 3 (pod digits-3-x on worker3) cannot resolve x"),
    ] == [(each.code, each.nodes, each.sentence) for each in found]
    assert ["NXDOMAIN", "node 2 (digits-2) cannot resolve x"] == found[0].facts


@pytest.mark.parametrize("events", [[], [{"involvedObject": {"name": "digits-1-x"}, "reason": "Killing"}]])
def test_what_was_heard_outlives_its_pod(events: list[dict[str, Any]]) -> None:
    """When one pod of a job has failed, Kubernetes deletes the others; the node is named all the same.

    Events may have the name of the pod by then, and not its machine.
    """
    ours = seen(pod(0))
    job = {"metadata": {"name": "digits"}, "spec": {"completions": 2}}
    those = _heard(report(1)).problems(ours.pods, {1})
    nodes = [
        each._replace(problem=those.get(each.number)) for each in node_status.nodes(job, ours.pods, events)
    ]
    told = dataclasses.replace(verdict(0, "node-missing"), nodes=[1])
    groups, machines = node_status.troubled(nodes), {1: "worker1"}
    (by_hub,) = outcomes.enriched([told], groups, machines)
    (without_hub,) = outcomes.verdicts(ours, groups, machines)
    assert "node 1 (digits-1 on worker1) cannot resolve x" == by_hub.sentence == without_hub.sentence


def test_what_was_explained_once_stands() -> None:
    """Whoever looks later, when pods and events are gone or others came, makes it no worse and no longer."""
    own = [
        Verdict.of("node-missing", say(node(1, DIGITS), " never came"), "gate", [1]),
        Verdict.of("node-missing", say(node(2, DIGITS), " never came, nor ", node(1, DIGITS)), "gate", [2]),
    ]
    full = pods.PodProblem("node-missing", "not scheduled: no room", "wait")
    other = pods.PodProblem("node-missing", "not scheduled: no room, again", "wait")
    group = node_status.Group([1], "node 1 (pod digits-1-x)", full)
    later = [group._replace(problem=other), group._replace(nodes=[2], problem=other)]
    machines = {1: "w1", 2: "w2"}

    first = outcomes.enriched(own, [group], machines)
    assert first == outcomes.enriched(first, [], {}, own)
    assert first == outcomes.enriched(first, [group], machines, own)
    one, two = outcomes.enriched(first, later, machines, own)
    assert first[0] == one
    place = "node 2 (digits-2 on w2) never came, nor node 1 (digits-1 on w1)"
    assert f"{place}: {later[1].sentence}" == two.sentence


def test_first_words_are_events() -> None:
    """With their times, of the nodes that are asked for."""
    assert [(6.0, "notice", "dns-not-found: node 1 (digits-1) cannot resolve x", 1)] == [
        (each.at, each.kind, each.text, each.node) for each in _heard(report(1), report(2)).events({1})
    ]


@pytest.mark.parametrize(
    ("missing", "codes"), [([1], ["dns-not-found"]), ([1, 2], ["node-missing"]), ([2], ["node-missing"])]
)
def test_who_came_and_did_not_reach_the_hub_is_not_missing(missing: list[int], codes: list[str]) -> None:
    """The hub could not know better; of nodes that nothing was heard of, it stands."""
    ours = seen(pod(0), pod(1), pod(2))
    assert ours.job is not None
    those = _heard(report(1)).problems(ours.pods)
    nodes = [
        each._replace(problem=those.get(each.number)) for each in node_status.nodes(ours.job, ours.pods, [])
    ]
    told = dataclasses.replace(verdict(0, "node-missing").saying("some never came"), nodes=missing)
    found = outcomes.enriched([told], node_status.troubled(nodes), {})
    assert codes == [each.code for each in found]
    assert (1 in missing) == ("(pod digits-1-x on worker1) cannot resolve x" in found[0].sentence)
