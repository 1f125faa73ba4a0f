"""Draws ranks over time: their phases, their calls, who has been waiting since when, and how some ended.

A call is a tick at the moment when it began. Many ranks that do the same share a lane.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from ddplaunch.agent.contract import Bundle, Collective, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run.view import ELSEWHERE, ENDED, IN_COLLECTIVE, IN_LOADER, JobView
from ddplaunch.agent.system import phrases
from ddplaunch.report.pictures import svg
from ddplaunch.report.pictures.svg import Picture
from ddplaunch.report.words import count, duration, some

NAME = "ranks-over-time"
TITLE = "Ranks over time"
_EACH = 24
"""Up to this many ranks, each one has its own lane."""
_CULPRITS = 8
"""Up to this many culprits, each one has its own lane."""
_LANES = 32
"""The most lanes."""
_WIDTH, _LEFT, _RIGHT = 1040, 196, 12
_TOP, _HEIGHT = 46, 30
_BAR = 20
_BEFORE = 0.8
"""How much of the time before the stop is drawn, as a multiple of the time since."""
_LEAST_BEFORE = 4.0
_NEAR = 1.4
"""If this many times the drawn time would reach back to the job's start, everything is drawn from there."""


class Lane(NamedTuple):
    """Ranks that are drawn as one; `what` says where they are."""

    ranks: list[int]
    culprit: bool
    what: str


class Scale(NamedTuple):
    """The time that is drawn, in seconds since the epoch."""

    start: float
    end: float

    def x(self, at: float) -> float:
        """Return where a moment is drawn; it is at the edge if it lies outside."""
        inside = min(max(at, self.start), self.end)
        return _LEFT + (inside - self.start) / (self.end - self.start) * (_WIDTH - _LEFT - _RIGHT)

    def holds(self, at: float) -> bool:
        return self.start <= at <= self.end


def picture(bundle: Bundle, view: JobView | None, verdict: Verdict | None) -> Picture | None:
    """Return the lanes; None if nothing has run yet."""
    if view is None or not view.ranks:
        return None
    culprits = list(verdict.ranks) if verdict else []
    lanes = together(view, culprits)
    shown, left = lanes[:_LANES], sum(len(lane.ranks) for lane in lanes[_LANES:])
    scale = _scale(bundle, view)
    height = _TOP + len(shown) * _HEIGHT + 30
    parts = [*_axis(scale, height), *_moments(bundle, scale, height)]
    for number, lane in enumerate(shown):
        parts += _lane(bundle, view, lane, scale, _TOP + number * _HEIGHT)
    parts += _legend(height - 8)
    notes = []
    if scale.start > bundle.started + 1:
        notes.append(
            f"The job had begun {duration(scale.start - bundle.started)} before this picture begins."
        )
    if left:
        notes.append(f"{count(left, 'more rank')} in other places are not drawn.")
    notes.append(
        "A tick is the start of a call of torch.distributed: the newest that torch's recorder and the hook "
        "keep of each rank. The line behind it reaches to its end, where that is recorded."
        if any(rank.calls or rank.collectives for rank in view.ranks.values())
        else "No calls of torch.distributed were recorded."
    )
    return Picture(NAME, TITLE, svg.drawing(_label(shown), _WIDTH, height, parts), notes)


def together(view: JobView, culprits: Sequence[int]) -> list[Lane]:
    """Return the lanes: those of culprits first, and lanes with few ranks before those with many."""
    if len(view.ranks) <= _EACH:
        order = sorted(view.ranks, key=lambda rank: (rank not in culprits, rank))
        return [Lane([rank], rank in culprits, _what(view, rank)) for rank in order]
    found: dict[tuple[bool, str], list[int]] = {}
    for rank in view.ranks:
        found.setdefault((rank in culprits, _what(view, rank)), []).append(rank)
    lanes = []
    for (culprit, what), ranks in sorted(
        found.items(), key=lambda item: (not item[0][0], len(item[1]), item[1])
    ):
        apart = culprit and len(ranks) <= _CULPRITS
        lanes += [Lane(each, culprit, what) for each in ([[rank] for rank in ranks] if apart else [ranks])]
    return lanes


def _what(view: JobView, number: int) -> str:
    """Return where a rank is, or how it ended."""
    rank = view.ranks[number]
    if rank.exit is not None:
        return f"ended: {phrases.exited(rank.exit)}"
    return "gone" if not rank.alive else str(view.locations[number])


def _scale(bundle: Bundle, view: JobView) -> Scale:
    end = max([view.evidence.at, *(node.at for node in view.nodes.values())])
    stop = min((_since(view, rank) for rank in view.ranks), default=end)
    drawn = (end - stop) + max(_BEFORE * (end - stop), _LEAST_BEFORE)
    start = bundle.started if end - bundle.started <= _NEAR * drawn else end - drawn
    return Scale(min(start, end - 1), end)


def _since(view: JobView, number: int) -> float:
    """Return when a rank ended, when it began the call that it is in, or when it made its last progress."""
    rank = view.ranks[number]
    if rank.exit is not None:
        return rank.exit.at
    call = rank.calls[-1] if rank.calls else None
    if (
        call
        and call.at
        and call.state in ("entered", "waiting")
        and view.locations[number].kind == IN_COLLECTIVE
    ):
        return call.at
    return view.nodes[view.node_of[number]].at - max(rank.stuck_for, 0.0)


def _axis(scale: Scale, height: float) -> Iterable[Markup]:
    """Yield lines at full seconds or minutes before the end, which is when the evidence was taken."""
    whole = scale.end - scale.start
    step = next(
        (each for each in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600) if whole / each <= 8),
        max(whole / 8, 1.0),
    )
    back = 0.0
    while back <= whole:
        x = scale.x(scale.end - back)
        yield svg.tag("line", x1=x, x2=x, y1=_TOP - 6, y2=height - 26, class_="rule")
        clock = time.strftime("%H:%M:%S", time.localtime(scale.end))
        words = f"-{_short(back)}" if back else clock
        yield svg.text(words, x, _TOP - 10, "quiet", "end" if not back else "middle")
        back += step
    yield svg.text("before the evidence", 0, _TOP - 10, "quiet")


def _short(seconds: float) -> str:
    return duration(seconds) if seconds >= 60 else f"{seconds:.0f} s"


def _moments(bundle: Bundle, scale: Scale, height: float) -> Iterable[Markup]:
    """Yield the first notice and the first verdict."""
    drawn: list[float] = []
    for kind in ("notice", "verdict"):
        at = next((event.at for event in bundle.events if event.kind == kind), None)
        if at is None or not scale.holds(at) or any(abs(scale.x(at) - other) < 52 for other in drawn):
            continue
        x = scale.x(at)
        drawn.append(x)
        yield svg.tag("line", x1=x, x2=x, y1=_TOP - 6, y2=height - 26, class_="moment")
        yield svg.text(kind, x, 14, "quiet", "end" if x > _WIDTH - 60 else "middle")


def _lane(bundle: Bundle, view: JobView, lane: Lane, scale: Scale, y: float) -> Iterable[Markup]:
    ranks = [view.ranks[rank] for rank in lane.ranks]
    name = some("rank", lane.ranks)
    nodes = view.nodes_of(lane.ranks)
    where = phrases.nodes(nodes, view.evidence.names) if len(nodes) == 1 and view.evidence.nodes > 1 else ""
    words = name if len(name) < 22 else count(len(lane.ranks), "rank")
    own = svg.fitted(f"{words}, {where}" if where else words, _LEFT - 10)
    yield svg.tag(
        "g", svg.title(f"{name}: {lane.what}"), svg.text(own, 0, y + 15, "bad" if lane.culprit else "")
    )
    ends = [_since(view, rank) if view.ranks[rank].exit else scale.end for rank in lane.ranks]
    yield from _phases(bundle, ranks, scale, y, max(ends))
    yield from _waiting(view, lane, scale, y)
    ticks = {round(scale.x(at)) for rank in ranks for at in _calls(rank) if scale.holds(at)}
    if ticks:
        path = "".join(f"M{x} {svg.number(y + 3)}v{_BAR - 6}" for x in sorted(ticks))
        yield svg.tag("path", d=path, class_="call")
    spans = {(round(scale.x(at)), round(scale.x(end))) for rank in ranks for at, end in _inside(rank, scale)}
    if spans:
        path = "".join(f"M{x} {svg.number(y + _BAR / 2)}h{max(end - x, 1)}" for x, end in sorted(spans))
        yield svg.tag("path", d=path, class_="inside")
    yield from _ends(lane, ranks, scale, y)


def _inside(rank: RankEvidence, scale: Scale) -> list[tuple[float, float]]:
    """Return from when to when the rank was in calls that have ended, within the time that is drawn."""
    ended = [(call.at, call.at + call.took) for call in _recorded(rank) if call.at and call.took is not None]
    return [(at, end) for at, end in ended if scale.holds(at) or scale.holds(end)]


def _recorded(rank: RankEvidence) -> tuple[Collective, ...]:
    return (*rank.collectives, *rank.calls)


def _calls(rank: RankEvidence) -> list[float]:
    return [call.at for call in _recorded(rank) if call.at]


def _phases(
    bundle: Bundle, ranks: Sequence[RankEvidence], scale: Scale, y: float, end: float
) -> Iterable[Markup]:
    """Yield the phases whose beginning is recorded. If there are several ranks, the last one counts."""
    release = next((event.at for event in bundle.events if event.kind == "release"), None)
    joined = [rank.rendezvous.at for rank in ranks if rank.rendezvous is not None]
    first = [
        call.at for rank in ranks for call in (*rank.collectives, *rank.calls) if call.seq == 1 and call.at
    ]
    begun = [
        ("gate", bundle.started if release else None),
        ("launch", release),
        ("init", max(joined) if joined else None),
        ("running", max(first) if first else None),
    ]
    if not first and any(_calls(rank) for rank in ranks):
        begun[-1] = ("running", scale.start)  # its first call is no longer recorded
        begun = begun[-1:]
    known = [(name, at) for name, at in begun if at is not None]
    for (name, at), (_, until) in pairwise([*known, ("", end)]):
        left, right = scale.x(at), scale.x(min(until, end))
        if right > left:
            yield svg.tag("rect", x=left, y=y, width=right - left, height=_BAR, class_=name)


def _waiting(view: JobView, lane: Lane, scale: Scale, y: float) -> Iterable[Markup]:
    """Yield since when the ranks have made no progress, and where. If there are several, since the
    first one.
    """
    still = [rank for rank in lane.ranks if view.ranks[rank].alive and view.ranks[rank].stuck_for >= 1]
    if not still:
        return
    kind = view.locations[still[0]].kind
    works = kind in (ELSEWHERE, IN_LOADER, ENDED)
    x = scale.x(min(_since(view, rank) for rank in still))
    width = scale.x(scale.end) - x
    tone = "at-fault" if lane.culprit else "waits"
    longest = max(view.ranks[rank].stuck_for for rank in still)
    verb = "no progress" if works else "waits"
    yield svg.tag(
        "g",
        svg.title(f"{some('rank', still)}: {lane.what}, {verb} for {duration(longest)}"),
        svg.tag("rect", x=x, y=y, width=width, height=_BAR, rx=3, class_=tone),
    )
    words = svg.fitted(lane.what, width - 12)
    if words:
        yield svg.text(words, x + 8, y + 14.5, "on-bad" if lane.culprit else "")


def _ends(lane: Lane, ranks: Sequence[RankEvidence], scale: Scale, y: float) -> Iterable[Markup]:
    """Yield exceptions and ends."""
    for raised in [raised for rank in ranks for raised in rank.raised if scale.holds(raised.at)][:20]:
        x = scale.x(raised.at)
        yield svg.tag(
            "path",
            svg.title(f"{raised.type}: {phrases.clipped(raised.message)}"),
            d=f"M{svg.number(x)} {svg.number(y + 2)}l7 {_BAR - 4}h-14z",
            class_="raised",
        )
    ends = [rank.exit.at for rank in ranks if rank.exit is not None]
    if not ends:
        return
    x = scale.x(min(ends))
    yield svg.tag("line", x1=x, x2=scale.x(scale.end), y1=y + _BAR / 2, y2=y + _BAR / 2, class_="gone")
    yield svg.tag("path", d=f"M{svg.number(x - 6)} {svg.number(y + 4)}l12 12m0 -12l-12 12", class_="cross")
    room = scale.x(scale.end) - x - 14
    words = svg.fitted(lane.what, room)
    if len(words) > 8:
        yield svg.text(words, x + 12, y + 14.5, "bad" if lane.culprit else "")
    else:
        words = svg.fitted(lane.what, x - _LEFT - 20)
        yield svg.text(words, _LEFT + 8, y + 14.5, "bad" if lane.culprit else "")


def _legend(y: float) -> Iterable[Markup]:
    entries = [
        ("gate", "gate"),
        ("launch", "processes start"),
        ("init", "init_process_group"),
        ("call", "calls, with their ends"),
        ("waits", "waits"),
        ("at-fault", "culprit"),
        ("raised", "exception"),
        ("cross", "ended"),
    ]
    x = float(_LEFT)
    for tone, words in entries:
        if tone == "call":
            shape = svg.tag("path", d=f"M{x + 1} {y - 10}v12M{x + 8} {y - 10}v12", class_=tone)
            shape += svg.tag("path", d=f"M{x + 1} {y - 4}h5M{x + 8} {y - 4}h4", class_="inside")
        elif tone == "raised":
            shape = svg.tag("path", d=f"M{x + 6} {y - 10}l6 11h-12z", class_=tone)
        elif tone == "cross":
            shape = svg.tag("path", d=f"M{x + 1} {y - 10}l10 10m0 -10l-10 10", class_=tone)
        else:
            shape = svg.tag("rect", x=x, y=y - 10, width=12, height=12, class_=tone)
        yield shape
        yield svg.text(words, x + 18, y, "quiet")
        x += 34 + len(words) * svg.LETTER


def _label(lanes: Sequence[Lane]) -> str:
    each = [f"{some('rank', lane.ranks)}{' (culprit)' * lane.culprit}: {lane.what}" for lane in lanes[:6]]
    return f"Ranks over time. {'; '.join(each)}{'; and others' * (len(lanes) > 6)}."
