"""What the hook's ring has kept of each rank's calls, for ranks whose recorder died with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import call, dead, job, only, rank, victim

from ddplaunch.agent.contract import Collective, Frame, RankEvidence
from ddplaunch.agent.diagnosis.run.decide import judge

WORDS = (
    "  what():  Received data size doesn't match. Is there a distributed collective mismatch in your code?"
)


def called(seq: int, op: str = "all_reduce", size: int = 16, line: int = 92) -> Collective:
    """A call that has not returned."""
    frames = [Frame("step", "/job/train.py", line)]
    return Collective("0", seq, op, [[size]], ["float32"], frames=frames, state="entered")


def aborted(number: int, *calls: Collective, **more: Any) -> RankEvidence:
    """A rank that Gloo has ended."""
    return dead(number, 0, signal=6, last_output=WORDS, calls=list(calls), **more)


def test_a_mismatch_is_found_in_what_the_dead_have_called() -> None:
    """Gloo aborts a rank, the others die with it, and no recorder answered: the odd one is named."""
    odd = called(17, size=64, line=88)
    ranks = [victim(0), aborted(1, called(17)), victim(2), victim(3)]
    kept = {0: called(17), 2: odd, 3: called(17)}
    evidence = [
        RankEvidence(**{**vars(each), "calls": [kept[each.rank]]}) if each.rank in kept else each
        for each in ranks
    ]
    verdict = only(job(*evidence, why="death"))

    assert ("collective-mismatch", [2], [0, 1, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence == (
        "at collective 17 rank 2 called all_reduce [64] (train.py:88), "
        "the others all_reduce [16] (train.py:92)"
    )


def test_calls_and_records_are_never_compared() -> None:
    """DistributedDataParallel's own reductions are counted by torch's recorder, and by no ring."""
    recorded = rank(0, collectives=[call(17, "all_reduce", [1000])])
    verdicts = judge(job(recorded, aborted(1, called(17, "broadcast", 4)), why="death"))

    assert [(verdict.code, verdict.ranks, verdict.confidence) for verdict in verdicts] == [
        ("collective-mismatch", [], 0.5)
    ]


def test_equal_calls_blame_nobody() -> None:
    """The ranks' own calls agree: the mismatch was in what no ring shows."""
    evidence = job(
        aborted(0, called(17)), aborted(1, called(17)), victim(2), rank(3, calls=[called(17)]), why="death"
    )
    verdict = only(evidence)

    assert ("collective-mismatch", [], 0.5) == (verdict.code, verdict.ranks, verdict.confidence)


def test_a_recorder_that_agrees_is_believed() -> None:
    """While ranks wait and answer, torch's own numbers decide, and the ring is not asked."""
    waits = [
        rank(number, collectives=[call(17, "all_reduce")], calls=[called(9, size=4 + number)])
        for number in range(2)
    ]

    assert [verdict.code for verdict in judge(job(*waits))] == ["unknown"]


def test_the_line_is_that_of_the_call() -> None:
    """A rank that has gone on since is not shown where it stands now."""
    waits = [
        rank(number, calls=[called(17, "broadcast" if number == 2 else "all_reduce", line=60 + number // 2)])
        for number in range(3)
    ]

    assert only(job(*waits)).sentence == (
        "at collective 17 rank 2 called broadcast [16] (train.py:61), "
        "the others all_reduce [16] (train.py:60)"
    )


def test_a_killed_rank_shows_where_it_was() -> None:
    """What it called last and where, whether it stood in there or had come back."""
    recv = Collective("0", 1, "recv", p2p=True, peer=0, frames=[Frame("step", "/job/train.py", 13)])
    for state, fact in (
        ("entered", "rank 1 was in recv from rank 0 (train.py:13)"),
        ("returned", "rank 1 had come back from recv from rank 0 (train.py:13)"),
    ):
        killed = dead(1, 0, signal=9, calls=[replace(recv, state=state)])

        assert fact in only(job(victim(0), killed, why="death")).facts
