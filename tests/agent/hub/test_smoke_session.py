"""A real hub that leads a smoke test, spoken to over its protocol by nodes whose ranks are told of only."""

from __future__ import annotations

from typing import Any

from tests.agent.gate.jobs import Job, make_plan
from tests.agent.hub.nodes import Node, gathered, only_verdict

from ddplaunch.agent.contract import SmokeRank, codec


def begun(job: Job, count: int) -> list[Node]:
    """Nodes that were told to begin, after a mesh in which all was well."""
    plan = make_plan(nodes=count, nproc_per_node=1, gate={"smoke_test": True})
    nodes = gathered(job, plan)
    for node in nodes:
        node.try_paths()
    for node in nodes:
        body = node.expect("smoke")
        assert (["gloo"], 29500) == (body["backends"], body["agreed"]["master_port"])
    return nodes


def ready(node: Node) -> None:
    """Its rank has torch; rank 0's store listens."""
    node.channel.send("smoke-ready", {"ports": {"gloo": 40123} if node.number == 0 else {}})


def results(node: Node, stage: str, **more: Any) -> None:
    """Of its one rank."""
    rank = SmokeRank(node.number, node.number, "gloo", stage, **more)
    node.channel.send("smoke-results", {"ranks": [codec.dump(rank)]})


def test_ranks_connect_once_all_have_torch_and_are_released_once_all_have_passed(job: Job) -> None:
    first, second = begun(job, 2)
    ready(first)
    assert first.channel.receive(0.5) is None
    ready(second)

    for node in (first, second):
        body = node.expect("smoke-go")
        assert {"gloo": 40123} == body["ports"]
        results(node, "done", size=1 << 24, seconds=1.0, rate=3e8)
    first.free_port()
    assert first.expect("release") == second.expect("release")


def test_one_failure_stops_the_others(job: Job) -> None:
    """They are asked how far they are, and the verdict rests on all."""
    first, second = begun(job, 2)
    for node in (first, second):
        ready(node)
    for node in (first, second):
        node.expect("smoke-go")
    results(second, "store", error="RuntimeError: no")
    first.expect("smoke-stop")
    results(first, "store")

    (verdict,) = first.expect("verdict")["verdicts"]
    assert ("backend-unfit", [1]) == (verdict["code"], verdict["nodes"])
    assert ["gloo: rank 0 stands in init_process_group"] == verdict["facts"][:1]


def test_torch_that_is_missing_on_one_node_is_not_waited_for(job: Job) -> None:
    first, second = begun(job, 2)
    results(second, "started", error="ModuleNotFoundError: No module named 'torch'")
    first.expect("smoke-stop")
    results(first, "started")

    assert ("image-lacks", [1]) == only_verdict(second)


def test_a_node_that_never_answers_is_named(job: Job) -> None:
    first, second, _ = begun(job, 3)
    results(second, "store", error="RuntimeError: no")
    first.expect("smoke-stop")
    results(first, "imported")

    assert ("node-missing", [2]) == only_verdict(second, 15)


def test_a_node_that_goes_away_is_missing_at_once(job: Job) -> None:
    first, second = begun(job, 2)
    second.channel.close()

    assert ("node-missing", [1]) == only_verdict(first)
