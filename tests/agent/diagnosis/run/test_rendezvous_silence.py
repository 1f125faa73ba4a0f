"""Calls of init_process_group that work, or may: nothing is said about them, or something better."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import dead, in_evaluate, raised, rank
from tests.agent.diagnosis.build_calls import caller, localhost, nodes, sets

from ddplaunch.agent.contract import JobEvidence, RankEvidence
from ddplaunch.agent.diagnosis.run import decide


def silent(evidence: JobEvidence) -> None:
    """No word about the calls, now or once they have hung."""
    assert [] == decide.never_meet(evidence)
    codes = {verdict.code for verdict in decide.judge(replace(evidence, why="still"))}
    assert codes <= {"unknown", "rank-late-to-init", "rank-in-user-code"}


def passed(process: RankEvidence) -> RankEvidence:
    """The same rank, once its call has returned."""
    assert process.rendezvous is not None
    return replace(process, rendezvous=replace(process.rendezvous, passed=True))


RIGHT = {
    "as torchrun wants it": nodes([caller(0), caller(1)], [caller(2), caller(3)]),
    "localhost on one machine": nodes(
        [localhost(0), localhost(1)], [localhost(2), localhost(3)], one_machine=True, master_addr=""
    ),
    "localhost, of which it is not known whether it is one machine": replace(
        (strange := nodes([localhost(0, world=2)], [localhost(1, world=2)], master_addr="")),
        evidence=[replace(node, machine="") for node in strange.evidence],
    ),
    "another name of the same node": nodes(
        [caller(0, 2, address="head", resolved=["127.0.1.1"])],
        [caller(1, 2, address="n1", resolved=["10.0.0.1"])],
    ),
    "a job of its own on each node": nodes(
        [localhost(n, world=2, rank=n) for n in (0, 1)],
        [replace(localhost(n, world=2, rank=n), local_rank=n) for n in (0, 1)],
        master_addr="",
    ),
    "the launcher's values, set once more": nodes(
        [
            caller(n, 2, settings=sets(MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"), agent_store=True)
            for n in (0, 1)
        ]
    ),
    "timeouts that differ": nodes([caller(0, 2, timeout=60.0)], [caller(1, 2, timeout=1800.0)]),
    "backends by another name, or with one more": nodes(
        [caller(0, 3), caller(1, 3, backend="cpu:gloo")], [caller(2, 3, backend="cpu:gloo,cuda:nccl")]
    ),
    "a restarted rank": nodes(
        [
            dead(0, -5, code=1, by_us=True, rendezvous=caller(0, 2).rendezvous),
            replace(caller(0, 2), pid=4000),
            caller(1, 2),
        ],
        world_size=2,
    ),
}
"""Calls that work, or that may work: nothing may be said about them."""


@pytest.mark.parametrize("name", RIGHT)
def test_calls_that_work(name: str) -> None:
    """Silence, at the call and later."""
    silent(RIGHT[name])


def test_calls_that_have_returned() -> None:
    """What has worked is right, however odd it looks."""
    odd = nodes([passed(localhost(0, world=2))], [passed(localhost(1, world=2))])

    assert [] == decide.never_meet(odd)


def test_a_call_that_a_silent_node_has_told_of() -> None:
    """It may have returned long ago."""
    evidence = nodes(
        [passed(caller(0, 2))], [caller(1, 2, unresolved="NXDOMAIN", settings=sets(MASTER_ADDR="x"))]
    )

    assert [] == decide.never_meet(replace(evidence, silent=[1]))


def test_a_rank_that_failed_before_its_call() -> None:
    """Its own exception is what ended the job, whatever the others' calls say."""
    error = raised("ValueError", "no such file", 1)
    evidence = nodes(
        [localhost(0), localhost(1)], [localhost(2), dead(3, 2, code=1, raised=[error])], why="death"
    )
    (verdict,) = decide.judge(evidence)

    assert ("rank-failed", [3]) == (verdict.code, verdict.ranks)


def test_a_rank_that_is_late_is_named_before_a_guess() -> None:
    """What calls only suggest comes after a rank that has not called."""
    made = {"port": 12345, "settings": sets(MASTER_PORT="12345")}
    late = rank(1, in_evaluate(), groups=[], initialized=False)
    (verdict,) = decide.judge(nodes([caller(0, 2, **made)], [late], why="still"))

    assert ("rank-late-to-init", [1]) == (verdict.code, verdict.ranks)


def test_ranks_that_were_not_seen_may_yet_come() -> None:
    """One of four is there, as when a busy machine starts them: an address of its own is no fault."""
    made = {"port": 12345, "settings": sets(MASTER_PORT="12345")}
    verdicts = decide.judge(nodes([caller(2, 4, **made)], why="still", world_size=None))

    assert "rendezvous-overridden" not in [verdict.code for verdict in verdicts]


def test_only_odd_calls_are_worth_a_look() -> None:
    """A job that leaves all to its launcher asks no node for evidence."""
    assert not decide.is_odd_start(RIGHT["as torchrun wants it"])
    assert decide.is_odd_start(nodes([localhost(0)], [localhost(1)]))
    assert decide.is_odd_start(nodes([caller(0)], [caller(1, rank=0)]))
    assert decide.is_odd_start(nodes([caller(0)], [caller(1, 5)]))
