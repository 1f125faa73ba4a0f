"""Who waits for whom."""

from __future__ import annotations

import dataclasses

from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Exited, Frame, RankEvidence, Stack, Verdict
from ddplaunch.report.pictures import waits
from ddplaunch.report.pictures.svg import Picture


def drawn(ranks: list[RankEvidence], verdict: Verdict | None) -> Picture | None:
    """The picture of these ranks."""
    return waits.picture(stuck.view(stuck.bundle(ranks)), verdict)


def test_of_a_large_circle_some_are_drawn() -> None:
    picture = drawn(stuck.circle(40), None)

    assert picture is not None
    assert 10 == picture.svg.count('class="way circle"')
    assert "… 31 more ranks" in read(picture.svg).text


def test_who_waits_and_for_whom_are_two_sides() -> None:
    """A rank with fewer calls than the others wait in is behind: the arrow is proven, and whole."""
    ranks = stuck.mismatch()
    ahead = stuck.call(1, "all_reduce", 9, stuck.END - 40, "returned")
    busy = stuck.rank(3, ahead)
    frames = [Frame("evaluate", stuck.FILE, 140)]
    ranks[3] = dataclasses.replace(busy, stacks=[Stack("MainThread", True, frames)])
    picture = drawn(ranks, stuck.verdict("rank-in-user-code", 3))

    assert picture is not None
    assert (1, 0) == (picture.svg.count('class="way"'), picture.svg.count("supposed"))
    assert "evaluate (train.py:140)" in read(picture.svg).text


def test_an_arrow_that_only_the_verdict_draws_is_dashed() -> None:
    """Of an ended rank no count is left that proves it."""
    ranks = [dataclasses.replace(each, groups=[]) for each in stuck.mismatch()]
    ranks[3] = dataclasses.replace(ranks[3], alive=False, exit=Exited(stuck.END - 10, code=1))
    picture = drawn(ranks, stuck.verdict("rank-failed", 3))

    assert picture is not None
    assert 1 == picture.svg.count("way supposed")
    assert any("dashed" in note for note in picture.notes)


def test_where_nobody_waits_there_is_no_picture() -> None:
    ranks = [dataclasses.replace(each, alive=False, exit=Exited(0.0, code=1)) for each in stuck.mismatch()]

    assert None is drawn(ranks, stuck.verdict("rank-failed", 3))
