"""Pages folded to a terminal."""

from __future__ import annotations

import pytest

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.report import explain


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_folding_loses_no_word(code: str) -> None:
    """A page on a narrow terminal has the same words in the same order, and its examples as they are."""
    page = explain.page(code)
    narrow = explain.folded(page, 60)

    assert narrow.split() == page.split()
    assert [line for line in narrow.splitlines() if line.startswith("    ")] == [
        line for line in page.splitlines() if line.startswith("    ")
    ]
    assert all(len(line) <= 60 or line.startswith(("    ", "#")) for line in narrow.splitlines())


def test_list_items_stay_items() -> None:
    assert explain.folded("- one two three\n  four\n- five", 12) == "- one two\n  three four\n- five"


def test_what_fits_is_left_alone() -> None:
    page = explain.page("rank-failed").rstrip()

    assert explain.folded(page, 200) == page
