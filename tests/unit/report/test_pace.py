"""One line on the pace of a job that runs."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import JobPace, RankPace
from ddplaunch.report import board


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (JobPace(4, 0.42), "a step takes 420 ms, 2.4 a second"),
        (JobPace(4, 75.0), "a step takes 1 min 15 s"),
        (JobPace(4), ""),
        (
            JobPace(4, 12.4, 0.35, 0.0, [RankPace(0, 12.4, 0.3)]),
            "a step takes 12 s, 4.8 a minute; of the last minute 35% in collectives",
        ),
        (
            JobPace(2, 0.0042, 0.04, 0.5),
            "a step takes 4 ms, 238 a second; of the last minute 50% waiting for data",
        ),
        (
            JobPace(2, None, 0.34, 0.4, [RankPace(1, None, 0.08, 0.78), RankPace(0, None, 0.6, 0.0)]),
            "rank 1 is in collectives 8% and waits for data 78% of the last minute, the others 60%",
        ),
        (
            JobPace(1024, None, 0.5, 0.0, [RankPace(each, None, 0.1 + each / 10) for each in range(8)]),
            "rank 0 is in collectives 10% of the last minute, the others 50%",
        ),
        (
            JobPace(2, 1.0, 0.3, 0.3, [RankPace(0, 1.0)]),
            "a step takes 1.0 s, 60 a minute; of the last minute 30% in collectives, 30% waiting for data",
        ),
    ],
)
def test_what_is_known_is_said(known: JobPace, text: str) -> None:
    """The step, and the rank for which the others wait, where one stands out."""
    assert text == board.pace_text(known)


@pytest.mark.parametrize(
    ("known", "second"),
    [
        (
            JobPace(2, 0.5, 0.3, first=[RankPace(1, 0.5, 0.08), RankPace(0, 0.5, 0.6)]),
            "rank 1 8%, rank 0 60%",
        ),
        (
            JobPace(64, 0.5, 0.3, first=[RankPace(each, 0.5, 0.3) for each in (4, 7)]),
            "rank 4 30%, rank 7 30%",
        ),
    ],
)
def test_the_ranks_that_wait_least_have_a_line(known: JobPace, second: str) -> None:
    """Below the step, with the number of ranks that it is of."""
    lines = board.pace_lines(known)

    assert board.pace_text(known) == lines[0]
    least = "least: " if known.ranks > 2 else ": "
    assert [f"{known.ranks} ranks; in collectives {least}".replace(" : ", ": ") + second] == lines[1:]


@pytest.mark.parametrize("known", [JobPace(2), JobPace(1, 0.5, first=[RankPace(0, 0.5, 0.1)])])
def test_no_line_compares_what_is_not_known(known: JobPace) -> None:
    """Nor a rank with itself."""
    assert len(board.pace_lines(known)) == (known.step is not None)
