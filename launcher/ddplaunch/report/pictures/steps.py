"""Draws how long steps take on each rank: the median of the last ones, and the spread between them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from ddplaunch.agent.contract import RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.report.pictures import svg
from ddplaunch.report.pictures.svg import Picture
from ddplaunch.report.words import count, duration, some

NAME = "step-times"
TITLE = "Step times"
_WIDTH, _LEFT, _RIGHT = 1040, 64, 12
_TOP, _HIGH = 12, 168
_COLUMNS = 128
"""The most columns. If there are more ranks, several share a column, which shows the slowest of them."""
_NOTABLE = 1.1
"""The slowest rank is named if its step takes this many times the usual one."""
_MEASURE = (
    "A step is the time from a completed collective to the next of its kind, as each rank saw it: the bar is "
    "the median of its last ones, the line reaches from the quickest tenth to the slowest."
)


class _Column(NamedTuple):
    ranks: list[int]
    low: float
    median: float
    high: float
    culprit: bool


def picture(view: JobView | None, verdict: Verdict | None) -> Picture | None:
    """Return a column for each rank; None if no rank has two steps whose time is known."""
    known = [rank for rank in view.ranks.values() if len(rank.step_times) >= 2] if view else []
    if view is None or not known:
        return None
    culprits = set(verdict.ranks) if verdict else set()
    columns = _columns(known, culprits)
    most = max(column.high for column in columns) or 1.0
    width = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    parts = [*_axis(most)]
    for place, column in enumerate(columns):
        parts.append(_bar(column, _LEFT + place * width, min(width, 96), most))
    apart = max(1, -(-len(columns) * 30 // (_WIDTH - _LEFT)))
    for place in range(0, len(columns), apart):
        column = columns[place]
        middle = _LEFT + place * width + min(width, 96) / 2
        tone = "bad" if column.culprit else "quiet"
        parts.append(svg.text(str(column.ranks[0]), middle, _TOP + _HIGH + 18, tone, "middle"))
    parts.append(svg.text("rank", 0, _TOP + _HIGH + 18, "quiet"))
    by_median = sorted(columns, key=lambda column: column.median)
    slowest, usual = by_median[-1], statistics.median(column.median for column in columns)
    words = (
        f"The median step takes {_seconds(usual)}, and {_seconds(slowest.median)} on "
        f"{some('rank', slowest.ranks)}, the slowest."
        if slowest.median > _NOTABLE * usual
        else f"The median step takes {_seconds(usual)}, and on no rank much more."
    )
    notes = [words, _MEASURE]
    if not all(pace.steady(rank.step_times) for rank in known):
        notes.append("Several collectives in each step, or uneven steps: these times are parts of steps.")
    shared = max(len(column.ranks) for column in columns)
    if shared > 1:
        notes.append(f"A column stands for {count(shared, 'rank')}, and is that of the slowest of them.")
    if len(known) < len(view.ranks):
        notes.append(f"Of {count(len(view.ranks) - len(known), 'rank')} no steps are known.")
    return Picture(NAME, TITLE, svg.drawing(f"Step times. {words}", _WIDTH, _TOP + _HIGH + 26, parts), notes)


def _columns(ranks: Sequence[RankEvidence], culprits: set[int]) -> list[_Column]:
    share = -(-len(ranks) // _COLUMNS)
    found = []
    for start in range(0, len(ranks), share):
        each = [_column(rank, culprits) for rank in ranks[start : start + share]]
        slowest = max(each, key=lambda column: (column.culprit, column.median))
        found.append(slowest._replace(ranks=[rank for column in each for rank in column.ranks]))
    return found


def _column(rank: RankEvidence, culprits: set[int]) -> _Column:
    tenths = statistics.quantiles(rank.step_times, n=10, method="inclusive")
    middle = statistics.median(rank.step_times)
    return _Column([rank.rank], tenths[0], middle, tenths[-1], rank.rank in culprits)


def _bar(column: _Column, x: float, width: float, most: float) -> Markup:
    def y(seconds: float) -> float:
        return _TOP + _HIGH * (1 - seconds / most)

    tone = "step culprit" if column.culprit else "step"
    gap = min(width * 0.2, 8)
    middle = x + width / 2
    name = some("rank", column.ranks)
    spread = f"{_seconds(column.low)} to {_seconds(column.high)}"
    return svg.tag(
        "g",
        svg.title(f"{name}: median {_seconds(column.median)}, {spread}"),
        svg.tag(
            "rect",
            x=x + gap / 2,
            y=y(column.median),
            width=max(width - gap, 1.0),
            height=_TOP + _HIGH - y(column.median),
            class_=tone,
        ),
        svg.tag("line", x1=middle, x2=middle, y1=y(column.low), y2=y(column.high), class_="usual"),
    )


def _axis(most: float) -> Iterable[Markup]:
    for part in (0.0, 0.5, 1.0):
        y = _TOP + _HIGH * (1 - part)
        yield svg.tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="rule")
        yield svg.text(_seconds(most * part) if part else "0", _LEFT - 8, y + 4, "quiet", "end")


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else duration(value)
