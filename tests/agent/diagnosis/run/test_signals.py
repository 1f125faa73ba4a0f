"""Signals that lead one half of the ranks away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import NOW, only
from tests.agent.diagnosis.run.build_blocked import call
from tests.agent.diagnosis.run.build_branches import FILE, all_of, stands

from ddplaunch.agent.contract import Frame, RankEvidence, Signalled, Verdict
from ddplaunch.agent.system import phrases

AT = NOW - 9.0


def left(number: int, *signals: Signalled) -> RankEvidence:
    """A rank that entered a barrier a second before NOW - 8."""
    entered = replace(call("barrier", 9, 13, "entered"), at=NOW - 8.0, frames=[Frame("load", FILE, 13)])
    return stands(number, "barrier", ("main", 5), ("load", 13), calls=[entered], signals=[*signals])


def went_on(number: int, *signals: Signalled) -> RankEvidence:
    return stands(number, "broadcast", ("main", 3), ("init_weights", 10), signals=[*signals])


def came(number: int = 10, at: float = AT) -> Signalled:
    return Signalled(number, at, Frame("note", FILE, 30))


def halves(*ranks: RankEvidence) -> Verdict:
    return only(all_of(*ranks))


def test_of_two_halves_the_one_to_which_a_signal_came_alone_is_named() -> None:
    verdict = halves(left(0, came()), left(1, came()), went_on(2), went_on(3))

    assert ("collective-mismatch", [0, 1], [2, 3], 0.85) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    said = f"; SIGUSR1 came to ranks 0 and 1 alone at {phrases.clock(AT)} (note, train.py:30)"
    assert verdict.sentence.endswith(said)
    assert "all leave when one has got it" in verdict.hint


@pytest.mark.parametrize(
    "ranks",
    [
        (left(0, came()), left(1, came()), went_on(2, came()), went_on(3)),
        (left(0, came()), left(1), went_on(2), went_on(3)),
        (left(0, came()), left(1, came(12)), went_on(2), went_on(3)),
        (left(0, came(at=NOW - 90)), left(1, came(at=NOW - 90)), went_on(2), went_on(3)),
        (left(0, came(14)), left(1, came(14)), went_on(2), went_on(3)),
    ],
    ids=["it came to others too", "to half of them", "two signals", "long ago", "of a timer"],
)
def test_any_other_signal_decides_nothing(ranks: tuple[RankEvidence, ...]) -> None:
    verdict = halves(*ranks)

    assert ([0, 1, 2, 3], 0.7) == (verdict.ranks, verdict.confidence)
