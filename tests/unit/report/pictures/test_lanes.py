"""Ranks over time."""

from __future__ import annotations

import dataclasses
import re

from tests.unit.report import conftest as given
from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Exited, RankEvidence
from ddplaunch.report.pictures import lanes
from ddplaunch.report.pictures.svg import Picture


def drawn(ranks: list[RankEvidence], *culprits: int) -> Picture:
    """The picture of these ranks."""
    found = stuck.bundle(ranks)
    picture = lanes.picture(found, stuck.view(found), stuck.verdict("collective-mismatch", *culprits))
    assert picture is not None
    return picture


def test_a_wait_begins_with_the_call() -> None:
    """The moment of a call is exact, the seconds since progress are not."""
    ranks = [dataclasses.replace(each, stuck_for=1.0) for each in stuck.mismatch()]

    assert drawn(ranks, 3).svg == drawn(stuck.mismatch(), 3).svg.replace(
        "waits for 30 s", "waits for 1.0 s"
    ).replace("waits for 29 s", "waits for 1.0 s")


def test_a_line_behind_a_tick_reaches_to_the_end_of_the_call() -> None:
    """None is drawn of a call that has not ended, or whose end is not recorded."""
    ranks = stuck.mismatch()
    unknown = [
        dataclasses.replace(
            each,
            calls=[dataclasses.replace(call, took=None) for call in each.calls],
            collectives=[dataclasses.replace(call, took=None) for call in each.collectives],
        )
        for each in ranks
    ]
    longer = [
        dataclasses.replace(each, calls=[dataclasses.replace(each.calls[0], took=9.0), *each.calls[1:]])
        for each in ranks
    ]

    assert [4, 0] == [drawn(each, 3).svg.count('class="inside"') - 1 for each in (ranks, unknown)]
    assert [12, 138] == [max(_widths(drawn(each, 3).svg)) for each in (ranks, longer)]


def _widths(svg: str) -> list[int]:
    """How far the lines of calls reach, without those of the legend."""
    paths = re.findall(r'<path d="([^"]*)" class="inside"', svg)
    return [int(width) for path in paths[:-1] for width in re.findall(r"h(\d+)", path)]


def test_many_ranks_that_do_the_same_share_a_lane() -> None:
    """Of 1,024 there are two, and the picture stays small."""
    picture = drawn(stuck.mismatch(1024, 700), 700)

    assert "ranks 0-699, 701-1023: all_reduce 2 (train.py:9)" in picture.svg
    assert 1 == picture.svg.count('class="waits"') - 1
    assert len(picture.svg) < 20_000


def test_an_end_is_a_cross_with_its_cause() -> None:
    """And nothing is drawn of the rank from then on."""
    ranks = stuck.mismatch()
    ranks[1] = dataclasses.replace(ranks[1], alive=False, exit=Exited(stuck.END - 10, signal=9))
    svg = drawn(ranks, 1).svg

    assert 1 == svg.count('class="cross"') - 1
    assert "ended: SIGKILL" in read(svg).text
    assert 2 == svg.count('class="waits"') - 1 - 1  # ranks 0, 2 and 3


def test_what_is_left_out_before_is_said() -> None:
    """A job of hours is drawn from shortly before its stop."""
    found = dataclasses.replace(stuck.bundle(stuck.mismatch()), started=stuck.END - 7200)
    picture = lanes.picture(found, stuck.view(found), None)

    assert picture is not None
    assert "The job had begun 1 h 59 min before this picture begins." in picture.notes


def test_without_ranks_there_is_no_picture() -> None:
    """The job did not come through its gate."""
    assert None is lanes.picture(given.bundle(evidence=None), None, None)
