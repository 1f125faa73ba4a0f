"""Of a rank that waits for others, what else goes on in it and below it is no progress."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agent.supervisor.samples import IN_COLLECTIVE, LOADER, Clock, location

from ddplaunch.agent.system.proc import MainIo

OPEN = {"counted": (6, 5), "sent_itself": 500, "main_io": MainIo(10, 10)}
"""Its last collective is open, its sockets and its main thread have moved nothing more."""


@pytest.fixture(name="waiting")
def _waiting(clock: Clock) -> Clock:
    clock.seconds(2, **OPEN)
    assert 1.0 == clock.stuck
    return clock


@pytest.mark.parametrize(
    "facts",
    [{"written": 1 << 20}, {"read": 1 << 20}, {"pid": LOADER, "read": 1 << 20}],
    ids=["its threads write", "its threads read", "a child reads"],
)
def test_what_goes_on_beside_a_wait_is_movement(waiting: Clock, facts: dict[str, Any]) -> None:
    """A log of the machine's load and an upload go on for ever, also when the job hangs."""
    waiting.seconds(9, **OPEN, **facts)

    assert (10.0, 0.0) == (waiting.stuck, waiting.still)
    assert waiting.progress.suspicious(waiting.now)


@pytest.mark.parametrize(
    "facts",
    [
        {"main_io": MainIo(70_000, 10)},
        {"main_io": MainIo(10, 70_000)},
        {"sent_itself": 70_000},
        {"printed": True, "main_io": MainIo(10, 11)},
    ],
    ids=["reads", "writes", "sends", "prints"],
)
def test_what_a_waiting_rank_does_itself_is_progress(waiting: Clock, facts: dict[str, Any]) -> None:
    """A broadcast that takes minutes goes through its sockets."""
    waiting.second(**{**OPEN, **facts})

    assert 0.0 == waiting.stuck


@pytest.mark.parametrize("missing", ["sent_itself", "main_io"])
def test_bytes_whose_thread_is_not_known_are_progress(waiting: Clock, missing: str) -> None:
    """Those of a slow broadcast may be among them, where sockets cannot be counted."""
    waiting.seconds(3, written=1 << 20, **{**OPEN, missing: None})

    assert 0.0 == waiting.stuck


@pytest.mark.parametrize(
    "facts",
    [
        {"counted": (6, 6)},
        {
            "counted": (6, 5),
            "frames": location(("__next__", 700), file="/opt/torch/utils/data/dataloader.py"),
        },
    ],
    ids=["all are done", "one is open while it loads"],
)
def test_who_does_not_wait_may_have_its_threads_work_for_it(waiting: Clock, facts: dict[str, Any]) -> None:
    """A checkpoint is written by many threads, data is read by children."""
    waiting.seconds(5, written=1 << 20, **{**OPEN, **facts})

    assert 0.0 == waiting.stuck
    assert waiting.progress.suspicious(waiting.now) is True


def test_a_call_that_lasts_is_seen_by_the_stack_alone(clock: Clock) -> None:
    """Ranks that others have started have no counters."""
    seen = {**OPEN, "counted": None, "frames": IN_COLLECTIVE}
    clock.seconds(2, **seen)
    before = clock.stuck
    clock.seconds(5, written=1 << 20, **seen)

    assert before + 5.0 == clock.stuck
