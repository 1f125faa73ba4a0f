"""Numbers of nodes and ranks as people write them."""

from __future__ import annotations

import random

import pytest

from ddplaunch.agent.text import quantities


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([5], "5"), ([2, 0, 1, 5], "0-2, 5"), ([1, 1, 2], "1-2"), ([0, 2, 4], "0, 2, 4")],
)
def test_runs_of_numbers_are_put_together(numbers: list[int], text: str) -> None:
    """Neighbours become a range."""
    assert text == ", ".join(quantities.spans(numbers))


@pytest.mark.parametrize("shortest", [2, 3])
def test_spans_lose_no_number(shortest: int) -> None:
    """What is written can be read back."""
    numbers = set(random.Random(shortest).sample(range(200), 120))
    found: set[int] = set()
    for part in quantities.spans(numbers, shortest):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))

    assert numbers == found


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "rank 3"), ([1, 2], "ranks 1-2"), ([3, 5], "ranks 3, 5")]
)
def test_a_noun_has_its_number(numbers: list[int], text: str) -> None:
    """One rank, or several."""
    assert text == quantities.some("rank", numbers)
