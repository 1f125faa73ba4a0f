"""The step of a healthy rank, by its counters."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ddplaunch.agent.supervisor.rank_progress import Steps
from ddplaunch.agent.supervisor.ranks import Rank


def answer(called: int, entries: int = 0, backend: str = "nccl", word: str = "count") -> dict[str, Any]:
    """A hook's, in a program whose step has four collectives."""
    status = {"last_enqueued_collective": str(called), "last_completed_collective": str(called)}
    recorded = [
        {
            "profiling_name": f"{backend}:all_reduce",
            "pg_id": 0,
            "collective_seq_id": number,
            "retired": True,
            "input_sizes": [[100, number % 4]],
            "time_created_ns": number,
        }
        for number in range(called - entries + 1, called + 1)
    ]
    more = {"entries": recorded} if entries else {}
    return {"is": word, "recorders": {backend: {"pg_status": {"0": status}, **more}}}


def after(seconds: int, **asked: Any) -> Steps:
    """A rank that has made eight collectives a second, and was asked after 20 seconds."""
    steps = Steps()
    for second in range(seconds):
        more = {"entries": 40, "word": "steps", **asked} if second == 20 else {}
        steps.take(float(second), answer(100 + 8 * second, **more))
    return steps


def test_steps_follow_the_counters() -> None:
    """Two steps a second, also minutes after the recorder was read; before that nothing is known."""
    assert [None, 0.5, 0.5] == [after(seconds).seconds(seconds) for seconds in (20, 40, 400)]


def test_the_recorder_is_read_seldom() -> None:
    """Not in the first steps, once soon after, and again after ever longer times."""
    assert 10 == next(second for second in range(200) if after(min(second, 20)).claim_read(second))

    steps, asked = after(10), []
    for second in range(10, 400):
        word = "steps" if steps.claim_read(second) else "count"
        asked += [second] if word == "steps" else []
        steps.take(second, answer(100 + 8 * second, entries=40 if word == "steps" else 0, word=word))
    assert [10, 70, 310] == asked


def test_a_recorder_whose_text_does_not_come_is_not_asked_for_each_second() -> None:
    """On a busy machine it comes too late, and would do so each time: it costs the rank some 20 ms."""
    steps, asked = after(10), []
    for second in range(10, 200):
        asked += [second] if steps.claim_read(second) else []
        steps.take(second, answer(100 + 8 * second))

    assert [10, 70, 130, 190] == asked


def test_only_a_rank_that_is_measured_is_asked() -> None:
    """In a large job all would wait for each of them."""
    rank = Rank(0, 0, os.getpid())
    rank.steps = after(20)

    assert [b"count", b"steps"] == [rank.question(False, measured) for measured in (False, True)]


def test_a_slow_job_is_measured_between_its_steps() -> None:
    """A step of 20 s makes all of its collectives at once."""
    steps = Steps()
    for second in range(300):
        word = "steps" if steps.claim_read(second) else "count"
        steps.take(second, answer(100 + second // 20 * 4, 40 if word == "steps" else 0, word=word))

    assert [20.0, 20.0, None] == [steps.seconds(now) for now in (300, 330, 400)]


def test_what_is_not_known_is_not_shown() -> None:
    """Without steps in the recorder, without a recorder, and when the rank has stopped."""
    silent = Steps()
    for second in range(60):
        silent.take(second, None if second % 2 else {"is": "count", "recorders": {}})

    assert [None, None, None] == [after(60, entries=2).seconds(60), silent.seconds(60), after(60).seconds(90)]


def test_groups_that_are_made_again_begin_again() -> None:
    """Their counters do, and the steps before them are no measure."""
    steps = after(60)
    for second in range(60, 70):
        steps.take(second, answer(second - 59))

    assert 4.0 == pytest.approx(steps.seconds(70))
