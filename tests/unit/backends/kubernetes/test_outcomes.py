"""Outcomes by what the launcher itself has asked for; test_recorded.py has those of real objects."""

from __future__ import annotations

import pytest

from ddplaunch.backends.job import Outcome, State
from ddplaunch.backends.kubernetes import outcomes

OUTSIDE = "node 0 (pod low-0-nb87m): stopped from outside, not by `ddplaunch cancel`"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Outcome(State.LOST, 60, OUTSIDE), (State.CANCELLED, 60, "by `ddplaunch cancel`")),
        (Outcome(State.LOST, None, OUTSIDE), (State.CANCELLED, None, "by `ddplaunch cancel`")),
        (Outcome(State.FAILED, 40, ""), (State.FAILED, 40, "")),
        (Outcome(State.SUCCEEDED, 0), (State.SUCCEEDED, 0, "")),
    ],
)
def test_ones_own_cancel_is_not_from_outside(found: Outcome, told: tuple[State, int | None, str]) -> None:
    """Also where the command that asked for it did not live to see the end."""
    known = outcomes.as_cancelled(found)

    assert told == (known.state, known.exit_code, known.detail)
