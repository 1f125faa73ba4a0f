"""Torchruns that wait for one another for ever, and those that look as if they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, rank

from ddplaunch.agent.contract import JobEvidence, NodeEvidence, Rendezvous, Torchrun, Verdict
from ddplaunch.agent.diagnosis.run.decide import is_odd_start, judge, never_meet

HERE = Torchrun(77, nnodes="2", sized=True, backend="c10d", endpoint="n0:29400", opens_store=True)
STATIC = replace(HERE, backend="static", endpoint="n0:29500", node_rank=0)


def waiting(*runs: Torchrun | list[Torchrun], why: str = "call", **changes: Any) -> JobEvidence:
    """One torchrun on each node, on machines of their own; no rank has been started."""
    nodes = [
        NodeEvidence(
            node,
            f"n{node}",
            NOW,
            "rendezvous",
            machine=f"m{node}",
            addresses=[f"10.0.0.{node}", f"10.9.0.{node}"],
            torchruns=run if isinstance(run, list) else [run],
        )
        for node, run in enumerate(runs)
    ]
    return replace(JobEvidence("run", len(nodes), None, why, NOW, nodes), **changes)


def found(evidence: JobEvidence) -> Verdict | None:
    """What is told of them at once: the same as later, when nothing has moved for long."""
    told = never_meet(evidence)
    later = [each for each in judge(replace(evidence, why="still")) if each.code != "unknown"]
    assert not told or told == later
    assert bool(told) == is_odd_start(evidence)
    return told[0] if told else None


def test_torchruns_with_other_ids_are_told_with_both() -> None:
    verdict = found(waiting(replace(HERE, run_id="17"), replace(HERE, run_id="4242", opens_store=False)))

    assert verdict is not None
    assert ("environment-differs", [0, 1]) == (verdict.code, verdict.nodes)
    assert (
        "torchruns do not meet under different ids: --rdzv-id=17 on node 0, 4242 on node 1"
    ) == verdict.sentence
    assert "c10d at n0:29400, id 4242, nnodes 2" in str(verdict.facts[1])
    assert "$RANDOM" in verdict.hint


def test_two_jobs_of_two_nodes_each_may_have_an_id_each() -> None:
    ones, others = replace(HERE, run_id="a"), replace(HERE, run_id="b")

    assert found(waiting(ones, others, ones, others)) is None
    assert found(waiting(ones, others, ones, ones)) is not None  # the second one waits for nobody


def test_torchruns_that_may_begin_alone_are_left_alone() -> None:
    elastic = replace(HERE, nnodes="1:2")

    assert found(waiting(replace(elastic, run_id="a"), replace(elastic, run_id="b"))) is None


def test_a_torchrun_that_has_had_workers_ends_and_waits_for_nobody() -> None:
    """A script may start one after the other, each with an id of its own."""
    before = replace(HERE, run_id="step 1", has_started=True)

    assert found(waiting(before, replace(HERE, run_id="step 2"))) is None


def test_of_a_node_that_runs_several_or_none_nothing_is_known() -> None:
    other = replace(HERE, run_id="b")

    assert found(waiting(HERE, [])) is None
    assert found(waiting(HERE, [HERE, other])) is None
    assert found(waiting(HERE, other, silent=[1])) is None
    assert found(waiting(HERE, other, nodes=3)) is None


def test_a_rank_elsewhere_shows_that_torchruns_have_met() -> None:
    evidence = waiting(HERE, replace(HERE, run_id="b"))
    nodes = [replace(evidence.evidence[0], ranks=[rank(0, numbered_by="environment")]), evidence.evidence[1]]

    assert never_meet(replace(evidence, evidence=nodes)) == []


@pytest.mark.parametrize("endpoint", ["localhost:29400", "127.0.0.1", "[::1]:29400"])
def test_an_endpoint_that_is_each_machine_itself_is_told(endpoint: str) -> None:
    verdict = found(waiting(*[replace(HERE, endpoint=endpoint)] * 2))

    assert verdict is not None
    assert ("master-is-loopback", [0, 1]) == (verdict.code, verdict.nodes)
    assert f"looks for the others at {endpoint}, which is each node itself" in verdict.sentence


def test_node_0_may_call_itself_localhost() -> None:
    own = replace(HERE, endpoint="localhost:29400")
    client = replace(STATIC, node_rank=1, opens_store=False)

    assert found(waiting(own, replace(HERE, opens_store=False))) is None
    assert found(waiting(replace(STATIC, endpoint="localhost:29500"), client)) is None


def test_another_node_of_a_static_rendezvous_finds_nobody_at_its_own_localhost() -> None:
    client = replace(STATIC, endpoint="127.0.0.1:29500", node_rank=1, opens_store=False)
    verdict = found(waiting(replace(STATIC, endpoint="127.0.0.1:29500"), client))

    assert verdict is not None
    assert ("master-is-loopback", [1]) == (verdict.code, verdict.nodes)


def test_nodes_of_one_machine_meet_at_localhost() -> None:
    evidence = waiting(*[replace(HERE, endpoint="localhost:29400")] * 2)
    nodes = [replace(node, machine="m0") for node in evidence.evidence]

    assert found(replace(evidence, evidence=nodes)) is None


def test_a_store_that_nobody_opens_is_told() -> None:
    """By its second address a torchrun does not know its own machine."""
    verdict = found(waiting(*[replace(HERE, endpoint="10.9.0.0:29400", opens_store=False)] * 2))

    assert verdict is not None
    assert ("master-is-not-node-zero", [0]) == (verdict.code, verdict.nodes)
    assert "no torchrun opens the store at 10.9.0.0:29400" in verdict.sentence
    assert "is_host=1" in verdict.hint


@pytest.mark.parametrize("opens", [True, None])
def test_where_one_may_open_the_store_nothing_is_told(opens: bool | None) -> None:
    own = replace(HERE, endpoint="10.9.0.0:29400", opens_store=opens)

    assert found(waiting(own, replace(own, opens_store=False))) is None


def test_a_store_outside_of_the_job_is_told_only_if_nothing_comes_of_it() -> None:
    evidence = waiting(*[replace(HERE, endpoint="login:29400", opens_store=False)] * 2)

    assert [] == never_meet(evidence)
    assert ["master-is-not-node-zero"] == [each.code for each in judge(replace(evidence, why="still"))]


def test_other_ports_are_told_and_other_names_are_not() -> None:
    verdict = found(waiting(HERE, replace(HERE, endpoint="n0:29401", opens_store=False)))

    assert verdict is not None
    assert "n0:29400 on node 0" in verdict.sentence
    assert "n0:29401 on node 1" in verdict.sentence
    assert found(waiting(HERE, replace(HERE, endpoint="10.0.0.0:29400", opens_store=False))) is None


def test_two_that_are_node_0_and_one_that_wants_more_nodes_are_told() -> None:
    twice = found(waiting(STATIC, STATIC))
    more = found(waiting(HERE, replace(HERE, nnodes="3")))

    assert twice is not None
    assert more is not None
    assert ("rank-duplicate", [0, 1]) == (twice.code, twice.nodes)
    assert ("world-size-differs", [1]) == (more.code, more.nodes)
    assert "waits for 3 nodes, and the job has 2" in more.sentence


def alone(*runs: Torchrun, world: int = 2, per_node: int = 2) -> JobEvidence:
    """Each torchrun's ranks have made their process groups, of `world` ranks."""
    evidence = waiting(*runs)
    nodes = []
    for node in evidence.evidence:
        made = [
            rank(
                number,
                numbered_by="call",
                launcher=77,
                rendezvous=Rendezvous("env", NOW, rank=number, world_size=world, passed=True),
            )
            for number in range(per_node)
        ]
        nodes.append(replace(node, ranks=made))
    return replace(evidence, evidence=nodes)


PLAIN = Torchrun(77, backend="c10d", has_started=True)


def test_nodes_that_train_alone_without_having_been_told_so_are_noticed() -> None:
    (verdict,) = never_meet(alone(PLAIN, PLAIN))

    assert is_odd_start(alone(replace(PLAIN, has_started=False), PLAIN))
    assert ("world-size-differs", [0, 1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.startswith("each node trains alone: torchrun was started on nodes 0")
    assert "without --nnodes" in verdict.sentence


def test_who_says_for_how_many_nodes_means_it() -> None:
    sized = replace(PLAIN, sized=True)

    assert [] == never_meet(alone(sized, sized))
    assert [] == never_meet(alone(PLAIN, PLAIN, world=4))  # a world of both, by a rendezvous of its own
    assert [] == never_meet(waiting(PLAIN, PLAIN))  # no program has made a process group
