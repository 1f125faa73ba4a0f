"""Step times per rank."""

from __future__ import annotations

import dataclasses

from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.report.pictures import steps
from ddplaunch.report.pictures.svg import Picture


def drawn(world: int, slow: int) -> Picture | None:
    """The picture of ranks one of which takes twice as long."""
    ranks = [
        dataclasses.replace(each, step_times=[0.2 if each.rank == slow else 0.1] * 8)
        for each in stuck.mismatch(world, slow)
    ]
    return steps.picture(stuck.view(stuck.bundle(ranks)), stuck.verdict("slow", slow))


def test_the_slowest_rank_is_named_and_in_its_colour() -> None:
    picture = drawn(4, 2)

    assert picture is not None
    assert 1 == picture.svg.count('class="step culprit"')
    assert 3 == picture.svg.count('class="step"')
    assert "The median step takes 100 ms, and 200 ms on rank 2, the slowest." == picture.notes[0]


def test_of_many_ranks_several_share_a_bar_which_is_the_culprits() -> None:
    picture = drawn(1024, 700)

    assert picture is not None
    assert (1, 127) == (picture.svg.count('class="step culprit"'), picture.svg.count('class="step"'))
    assert "ranks 696-703: median 200 ms, 200 ms to 200 ms" in read(picture.svg).text
    assert "A column stands for 8 ranks, and is that of the slowest of them." in picture.notes


def test_without_step_times_there_is_no_picture() -> None:
    """One step alone tells nothing either."""
    ranks = [dataclasses.replace(each, step_times=[0.1]) for each in stuck.mismatch()]

    assert None is steps.picture(stuck.view(stuck.bundle(ranks)), None)
