"""Ranks that have raised, and do not end for what runs before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    NOW,
    PEER_GONE,
    dead,
    in_collective,
    in_evaluate,
    job,
    only,
    raised,
    rank,
    stack,
    victim,
)

from ddplaunch.agent.contract import Exited, Frame, Handler, JobEvidence, Raised, RankEvidence
from ddplaunch.agent.diagnosis.run.decide import judge

JOIN = Frame("join", "/opt/env/lib/python3.11/threading.py", 1149)
FINISH = Frame("finish", "/job/tracker.py", 33)
IN_FINALLY = Frame("train", "/job/train.py", 70)
FINALLY = Handler("finally", [60, 66], [68, 72])


def failure(kind: str = "ValueError", message: str = "vocabulary of 32001") -> Raised:
    """It came out of the line that the `finally` guards."""
    frames = [Frame("step", "/job/model.py", 9), Frame("train", "/job/train.py", 61)]
    return Raised(kind, message, NOW, frames, True, "hook")


def flushing(number: int, **more: Any) -> RankEvidence:
    """A rank whose tracker does not answer, in `finally`."""
    return rank(number, stack(JOIN, FINISH, IN_FINALLY), **{"in_flight": [failure()], **more})


def leaving(number: int, **more: Any) -> RankEvidence:
    """A rank in a barrier, in `finally`."""
    return rank(number, in_collective("barrier", 71), **{"in_flight": [failure()], **more})


def held(*ranks: RankEvidence, handler: Handler = FINALLY, **more: Any) -> JobEvidence:
    """The ranks of one node, whose train.py has this handler."""
    return job(*ranks, per_node=len(ranks), handlers={"/job/train.py": [handler]}, **more)


def test_what_all_ranks_have_raised_is_named_before_where_they_stand() -> None:
    verdict = only(held(flushing(0), leaving(1), leaving(2)))

    assert ("rank-failed", [0, 1, 2], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "all ranks raised ValueError: vocabulary of 32001 (model.py:9), and `finally` holds it back: "
        "rank 0 is in finish (tracker.py:33); ranks 1 and 2 are in barrier 17 (train.py:71)"
        == verdict.sentence
    )
    assert "rank 0 raised it in train (train.py:61) > step (model.py:9)" in verdict.facts


def test_one_rank_alone_is_to_blame_for_what_it_has_raised() -> None:
    """It raised from an exception of its own: the first one is the cause."""
    later = failure("TimeoutError", "no answer")
    both = flushing(1, in_flight=[replace(later, frames=[FINISH, IN_FINALLY]), failure()])
    verdict = only(held(rank(0), both, rank(2)))

    assert ("rank-failed", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 1 raised ValueError: vocabulary of 32001 (model.py:9), and")


def test_a_rank_in_its_own_code_may_have_led_to_it() -> None:
    verdict = only(held(leaving(0), rank(1, in_evaluate(), called=16), leaving(2)))

    assert ([0, 2], 0.7) == (verdict.ranks, verdict.confidence)
    assert "rank 1 is in evaluate (eval.py:140)" in verdict.facts


def test_different_failures_are_all_told() -> None:
    verdict = only(held(flushing(0), flushing(1, in_flight=[failure("KeyError", "'token'")])))

    assert [0, 1] == verdict.ranks
    assert "rank 0 raised ValueError" in verdict.sentence
    assert "; rank 1 raised KeyError: 'token' (model.py:9), and" in verdict.sentence


@pytest.mark.parametrize(
    "evidence",
    [
        held(rank(0), flushing(1, in_flight=[])),
        held(rank(0), flushing(1), handler=Handler("finally", [50, 55], [68, 72])),
        held(rank(0), flushing(1), handler=Handler("finally", [60, 66], [80, 82])),
        held(rank(0), flushing(1), handler=Handler("finally", [], [])),
        held(rank(0), flushing(1, in_flight=[failure("RuntimeError", PEER_GONE)])),
        held(rank(0), flushing(1, in_flight=[failure(), failure("RuntimeError", PEER_GONE)])),
        held(rank(0), rank(1, in_evaluate(), in_flight=[failure()])),
        held(rank(0), flushing(1, stuck_for=2.0)),
        job(rank(0), flushing(1)),
    ],
    ids=[
        "raised nothing",
        "from elsewhere",
        "is elsewhere",
        "no lines",
        "for its peer",
        "in the course of its peer's end",
        "handled above",
        "a moment ago",
        "no source",
    ],
)
def test_what_does_not_end_the_rank_is_not_held_back(evidence: JobEvidence) -> None:
    """An `except` that goes on is no handler here: the whole training may run in one."""
    assert "rank-failed" not in [verdict.code for verdict in judge(evidence)]


@pytest.mark.parametrize("sent_away", [False, True], ids=["lives", "was ended by its launcher"])
def test_a_rank_in_the_handler_that_others_left_with_an_exit_code_is_no_victim(sent_away: bool) -> None:
    """An `except` that ends with sys.exit leaves no traceback; who is still in it shows the exception."""
    exited = [dead(number, 0.0, code=1, groups=[]) for number in (1, 2)]
    handler = Handler("except", [60, 66], [68, 72])
    ended = {"alive": False, "exit": Exited(NOW - 9, signal=15, by_us=True)} if sent_away else {}
    verdict = only(held(flushing(0, **ended), *exited, handler=handler, why="death"))

    assert ("rank-failed", [0, 1, 2], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 raised ValueError: vocabulary of 32001 (model.py:9) and stayed in its `except`, in finish "
        "(tracker.py:33), while ranks 1 and 2 ended with exit code 1 and no exception (sys.exit or os._exit)"
        == verdict.sentence
    )


def test_what_those_who_left_the_handler_were_handling_is_the_proof() -> None:
    call = Raised("sys.exit", "1", NOW - 9, [Frame("train", "/job/train.py", 71)], True, "hook")
    left = [call, replace(flushing(0).in_flight[0], handled=True)]
    exited = [dead(number, 0.0, code=1, groups=[], left=left) for number in (1, 2)]
    handler = Handler("except", [60, 66], [68, 72])
    verdict = only(held(flushing(0), *exited, handler=handler, why="death"))

    assert ("rank-failed", [0, 1, 2], 0.95) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "rank 0 raised ValueError: vocabulary of 32001 (model.py:9) and stayed in its `except`, in finish "
        "(tracker.py:33), while ranks 1 and 2 ended with exit code 1, by sys.exit(1) (train.py:71)"
        == verdict.sentence
    )


@pytest.mark.parametrize(
    "lives",
    [flushing(0, in_flight=[]), flushing(0, in_flight=[failure("RuntimeError", PEER_GONE)]), rank(0)],
    ids=["handles nothing", "lost its peer", "waits"],
)
def test_who_lives_and_handles_nothing_of_its_own_is_a_victim_of_an_exit_code(lives: RankEvidence) -> None:
    verdict = only(held(lives, dead(1, 0.0, code=1), why="death"))

    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 1 ended with exit code 1")


HIDES = Raised("RuntimeError", PEER_GONE, NOW - 1, [Frame("train", "/job/train.py", 71)], False, "hook")


def test_an_exception_that_a_failed_call_in_finally_has_hidden_is_the_cause() -> None:
    """Rank 1 had failed by itself before a barrier in its `finally` said that rank 0 is gone."""
    hidden = dead(1, 0.0, code=1, raised=[HIDES], in_flight=[failure()])
    verdict = only(held(victim(0), hidden, why="death"))

    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 1 raised ValueError: vocabulary of 32001 (model.py:9)")


@pytest.mark.parametrize(
    "rank_1",
    [
        {"raised": [replace(HIDES, frames=[Frame("train", "/job/train.py", 61)])]},  # not in the handler
        {"raised": [HIDES], "in_flight": []},
        {"raised": [HIDES], "in_flight": [failure("RuntimeError", PEER_GONE)]},
        {"raised": [HIDES], "in_flight": [failure("RuntimeError", PEER_GONE), failure()]},
    ],
    ids=["it was handled", "nothing was handled", "its peer was gone", "it was gone before, too"],
)
def test_what_was_handled_or_came_from_a_peer_accuses_nobody(rank_1: dict[str, Any]) -> None:
    innocent = dead(1, 0.0, code=1, **{"in_flight": [failure()], **rank_1})
    verdict = only(held(dead(0, -1.0, signal=9), innocent, why="death"))

    assert ("rank-killed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)


def test_who_raised_the_same_and_lives_is_no_victim() -> None:
    """The others have ended by it. No handler is known where the source could not be read."""
    message = "vocabulary of 32001"
    died = [replace(victim(number), raised=[raised("ValueError", message, 0.9)]) for number in (1, 2)]
    verdict = only(job(flushing(0), *died, rank(3, in_evaluate()), why="death"))
    innocent = only(job(flushing(0, in_flight=[failure("KeyError", "a")]), *died, victim(3), why="death"))

    assert ("rank-failed", [0, 1, 2], [3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "not ended yet: rank 0 is in finish (tracker.py:33)" in verdict.facts
    assert [1, 2] == innocent.ranks
