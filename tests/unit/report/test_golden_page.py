"""Whole pages, element by element."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.report.cases import DOCS, PICTURES, case, docs_picture
from tests.unit.report.pages import outline, read

from ddplaunch.report import html

GOLDEN = Path(__file__).parents[2] / "golden" / "report"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_the_page_is_this_one(path: Path) -> None:
    page = html.page(case(path.stem))

    read(page)
    assert path.read_text("utf-8") == outline(page)


def test_there_are_pages_to_compare() -> None:
    """A hang, a circle, an exception, and a job that left nothing."""
    assert {"mismatch", "circle", "failed", "lost"} == {path.stem for path in GOLDEN.glob("*.txt")}


def test_a_thousand_ranks_are_a_page_like_that_of_four() -> None:
    """Below 1 MB, with the same sections."""
    found = {name: html.page(case(name)) for name in ("busy", "thousand")}
    sections = {
        name: [line for line in outline(page).splitlines() if "<section" in line]
        for name, page in found.items()
    }

    assert len(found["thousand"]) < 1_000_000
    assert [each for each in sections["busy"] if "reachability" not in each] == [
        each for each in sections["thousand"] if "reachability" not in each
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_documentation_are_those_of_today(name: str) -> None:
    assert (DOCS / f"{name}.svg").read_text("utf-8") == docs_picture(name)
