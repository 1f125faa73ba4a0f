"""Where the ways of ranks part."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given
from tests.unit.report.pages import read
from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Stack
from ddplaunch.report import spots
from ddplaunch.report.diagnosis import Diagnosis
from ddplaunch.report.pictures import calls
from ddplaunch.report.pictures.calls import Parting
from ddplaunch.report.scene import Scene


def parting(ranks: list[RankEvidence], code: str, *culprits: int) -> Parting | None:
    """Where these part."""
    return calls.find(stuck.view(stuck.bundle(ranks)), stuck.verdict(code, *culprits))


def test_both_call_sites_stand_side_by_side() -> None:
    """The culprit's first, at the number at which the calls differ."""
    picture = calls.picture(parting(stuck.mismatch(), "collective-mismatch", 3))

    assert picture is not None
    text = read(picture.svg).text
    assert text.index("broadcast [8] (train.py:14)") < text.rindex("all_reduce [8] (train.py:9)")
    assert 1 == picture.svg.count('class="box culprit"')
    assert (
        "At number 2: rank 3: broadcast [8] (train.py:14); ranks 0-2: all_reduce [8] (train.py:9)"
        in picture.svg
    )


def test_a_rank_that_has_not_called_parts_where_the_others_wait() -> None:
    """It is named with the place where it is instead."""
    ranks = stuck.mismatch()
    before = stuck.call(1, "all_reduce", 9, stuck.END - 40, "returned")
    frames = [Frame("evaluate", stuck.FILE, 140)]
    ranks[3] = dataclasses.replace(
        stuck.rank(3, before), stacks=[Stack("MainThread", True, frames)], collectives=[before]
    )
    found = parting(ranks, "rank-in-user-code", 3)

    assert found is not None
    assert (2, [[3], [0, 1, 2]]) == (found.number, [way.ranks for way in found.ways])
    assert "never called: it is in evaluate (train.py:140)" == found.ways[0].shown()


def test_lines_differ_only_where_the_verdict_is_about_them() -> None:
    """A root may call from a line of its own, and is right."""

    def called(line: int) -> list[Collective]:
        return [
            stuck.call(1, "broadcast", line, stuck.END - 40, "returned"),
            stuck.call(2, "broadcast", line + 1, stuck.END - 30),
        ]

    ranks = [stuck.rank(number, *called(9 if number else 20)) for number in range(4)]

    assert None is parting(ranks, "unknown", 0)
    found = parting(ranks, "collective-skipped", 0)
    assert found is not None
    assert 1 == found.number


def test_sends_and_receives_part_nowhere() -> None:
    """They have no number that is the same on all ranks."""
    assert None is parting(stuck.circle(), "p2p-deadlock", 0, 1, 2)


def test_the_lines_of_code_are_those_of_the_two_calls() -> None:
    """With their text where the evidence has it."""
    verdict = stuck.verdict("collective-mismatch", 3)
    found = spots.spots(Scene(Diagnosis(given.job(), stuck.bundle(stuck.mismatch()), [verdict])))

    assert [("rank 3", True, 14), ("ranks 0-2", False, 9)] == [
        (each.who, each.culprit, each.line) for each in found
    ]
    assert ["dist.broadcast(x, 0)", "dist.all_reduce(x)"] == [each.text for each in found]
