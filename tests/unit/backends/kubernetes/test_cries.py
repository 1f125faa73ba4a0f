"""Which gates are listened to, and what becomes of what they say: tests/cluster does it on a cluster."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ddplaunch.agent.contract import JobStatus, NodeStatus, Phase, Verdict
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.backends.kubernetes import cries, pods, standing, states
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.cries import Cries, Heard
from ddplaunch.backends.kubernetes.queries import Seen

BEGUN = "2026-01-01T00:00:00Z"


def pod(node: int, hub: str = "running", gate: str = "running") -> dict[str, Any]:
    """One whose containers are in these states; a gate that has ended said no."""
    states = {"hub": hub, "gate": gate}
    return {
        "metadata": {
            "name": f"digits-{node}-x",
            "labels": {"batch.kubernetes.io/job-completion-index": f"{node}"},
        },
        "spec": {"nodeName": f"worker{node}"},
        "status": {
            "initContainerStatuses": [
                {"name": name, "state": {state: {"startedAt": BEGUN, "exitCode": 20}}}
                for name, state in states.items()
            ]
        },
    }


def seen(*pods: dict[str, Any]) -> Seen:
    """A look at these."""
    return Seen("lab", "digits", {"metadata": {}}, {"spec": {"completions": len(pods)}}, pods)


def status(*phases: str) -> JobStatus:
    """By the hub."""
    nodes = [NodeStatus(number, phase=phase) for number, phase in enumerate(phases)]
    return JobStatus("digits", 0, Phase.GATE, 0.0, nodes, 0.0, 0.0)


def verdict(node: int, code: str = "dns-not-found") -> Verdict:
    """As a node has it of itself."""
    return Verdict(code, f"node {node} (digits-{node}) cannot resolve x", "gate", [node], facts=["NXDOMAIN"])


def cry(node: int, code: str = "dns-not-found") -> Heard:
    """In its log."""
    return Heard(5.0 + node, UnreachedReport(node, 4.0, verdict(node, code)))


def numbers(pods: list[dict[str, Any]]) -> list[str]:
    """Their machines tell them apart."""
    return [each["spec"]["nodeName"] for each in pods]


def test_only_those_are_listened_to_whom_the_hub_does_not_know() -> None:
    """A job that all have come to costs nothing, nor one whose hub is not up yet."""
    pods = pod(0), pod(1), pod(2, gate="waiting")
    ours = seen(*pods)
    assert ["worker1"] == numbers(cries.unheard(ours, status(Phase.GATE, Phase.STARTING, Phase.STARTING)))
    assert ["worker0", "worker1"] == numbers(cries.unheard(ours, None))
    assert [] == cries.unheard(ours, status(Phase.GATE, Phase.GATE, Phase.STARTING))
    assert [] == cries.unheard(seen(pod(0, hub="waiting"), pod(1)), None)
    assert [] == cries.unheard(seen(pod(1)), None)


def test_afterwards_those_that_gave_up() -> None:
    """One that was deleted, or never began, has no log."""
    ours = seen(pod(0, gate="terminated"), pod(1, gate="terminated"), pod(2, gate="waiting"))
    assert ["worker1"] == numbers(cries.in_vain(ours, {1, 2, 3}))


def _heard(*found: Heard) -> Cries:
    those = Cries(Api())
    for each in found:
        name = f"digits-{each.cry.node}-x"
        those._last[name] = those._first[name, each.cry.verdict.code] = each
    return those


def test_nodes_with_the_same_trouble_are_told_together() -> None:
    """In the words of the first, with the pods and machines of all."""
    ours = seen(pod(0), pod(1), pod(2), pod(3))
    those = _heard(cry(1), cry(2), cry(3, "port-filtered")).troubles(ours.pods)
    assert ours.job is not None
    nodes = [
        each._replace(trouble=those.get(each.number)) for each in standing.nodes(ours.job, ours.pods, [])
    ]
    found = states.verdicts(ours, standing.troubled(nodes))
    assert [
        (
            "dns-not-found",
            [1, 2],
            "nodes 1-2 (pods digits-1-x on worker1, digits-2-x on worker2) cannot resolve x",
        ),
        ("port-filtered", [3], "node 3 (pod digits-3-x on worker3) cannot resolve x"),
    ] == [(each.code, each.nodes, each.sentence) for each in found]
    assert ["NXDOMAIN", "node 2 (digits-2) cannot resolve x"] == found[0].facts


def test_what_was_heard_outlives_its_pod() -> None:
    """When one pod of a job has failed, Kubernetes deletes the others; the node is named all the same."""
    ours = seen(pod(0))
    job = {"spec": {"completions": 2}}
    those = _heard(cry(1)).troubles(ours.pods, {1})
    nodes = [each._replace(trouble=those.get(each.number)) for each in standing.nodes(job, ours.pods, [])]
    told = dataclasses.replace(verdict(0, "node-missing"), nodes=[1])
    (found,) = states.enriched([told], standing.troubled(nodes), {1: "worker1"})
    assert "node 1 (digits-1 on worker1) cannot resolve x" == found.sentence


def test_what_was_explained_once_stands() -> None:
    """Whoever looks later, when pods and events are gone or others came, makes it no worse and no longer."""
    own = [
        Verdict("node-missing", "node 1 (digits-1) never came", "gate", [1]),
        Verdict("node-missing", "node 2 (digits-2) never came, nor node 1 (digits-1)", "gate", [2]),
    ]
    full = pods.Trouble("node-missing", "not scheduled: no room", "wait")
    other = pods.Trouble("node-missing", "not scheduled: no room, again", "wait")
    group = standing.Group([1], "node 1 (pod digits-1-x)", full)
    later = [group._replace(trouble=other), group._replace(nodes=[2], trouble=other)]
    machines = {1: "w1", 2: "w2"}

    first = states.enriched(own, [group], machines)
    assert first == states.enriched(first, [], {}, own)
    assert first == states.enriched(first, [group], machines, own)
    one, two = states.enriched(first, later, machines, own)
    assert first[0] == one
    place = "node 2 (digits-2 on w2) never came, nor node 1 (digits-1 on w1)"
    assert f"{place}: {later[1].sentence}" == two.sentence


def test_first_words_are_events() -> None:
    """With their times, of the nodes that are asked for."""
    assert [(6.0, "notice", "dns-not-found: node 1 (digits-1) cannot resolve x", 1)] == [
        (each.at, each.kind, each.text, each.node) for each in _heard(cry(1), cry(2)).events({1})
    ]


@pytest.mark.parametrize(
    ("missing", "codes"), [([1], ["dns-not-found"]), ([1, 2], ["node-missing"]), ([2], ["node-missing"])]
)
def test_who_came_and_did_not_reach_the_hub_is_not_missing(missing: list[int], codes: list[str]) -> None:
    """The hub could not know better; of nodes that nothing was heard of, it stands."""
    ours = seen(pod(0), pod(1), pod(2))
    assert ours.job is not None
    those = _heard(cry(1)).troubles(ours.pods)
    nodes = [
        each._replace(trouble=those.get(each.number)) for each in standing.nodes(ours.job, ours.pods, [])
    ]
    told = dataclasses.replace(verdict(0, "node-missing"), sentence="some never came", nodes=missing)
    found = states.enriched([told], standing.troubled(nodes), {})
    assert codes == [each.code for each in found]
    assert (1 in missing) == ("(pod digits-1-x on worker1) cannot resolve x" in found[0].sentence)
