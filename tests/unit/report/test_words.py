"""Numbers and times read as a person would say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.report import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (4.23, "4.2 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (192, "3 min 12 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    """The larger unit, and what is left in the next."""
    assert text == words.duration(seconds)


@given(st.floats(0, 1e8))
def test_every_duration_has_words(seconds: float) -> None:
    assert words.duration(seconds)[-1] in "snhd"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2**26, "64 MiB"), (1.5 * 2**30, "1.5 GiB"), (3000 * 2**40, "3000 TiB")],
)
def test_sizes_are_binary(number: float, text: str) -> None:
    """Memory is counted in powers of two, as the kernel does."""
    assert text == words.size(number)


def test_nouns_follow_their_number() -> None:
    assert ["rank 3", "ranks 0-1", "1 node", "1,024 nodes"] == [
        words.some("rank", [3]),
        words.some("rank", [0, 1]),
        words.count(1, "node"),
        words.count(1024, "node"),
    ]


def test_a_time_that_no_calendar_has_is_shown_as_none() -> None:
    """The record of one job may be broken, and `list` shows all others."""
    assert "at no known time" == words.clock(1e30)
