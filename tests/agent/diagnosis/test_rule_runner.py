"""What becomes of a rule that fails over facts which nobody foresaw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddplaunch.agent.diagnosis import rule_runner


def rule(facts: list[int]) -> Iterator[float]:
    """Says something before it fails."""
    yield 1.0
    yield 1 / facts[0]


def test_it_says_nothing_and_somebody_hears_of_it() -> None:
    """Not the half of it, either."""
    complaints: list[str] = []

    assert [1.0, 0.5] == rule_runner.run(rule, [2], complaints.append, "gate")
    assert [] == rule_runner.run(rule, [0], complaints.append, "gate")
    (complaint,) = complaints
    assert complaint.startswith("a rule of the gate failed:\nTraceback ")


def test_where_nobody_would_hear_of_it_it_is_raised() -> None:
    """As in a test, or on the launcher."""
    with pytest.raises(ZeroDivisionError):
        rule_runner.run(rule, [0], None, "run")
