"""Draws the calls of torch.distributed up to the one at which the ranks part, a column for each way they go.

All ranks of a group must make the same calls in the same order. The culprit's column comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from markupsafe import Markup

from ddplaunch.agent.contract import Collective, Frame, Verdict
from ddplaunch.agent.diagnosis.run import collectives, mpi, stacks
from ddplaunch.agent.diagnosis.run.view import IN_MPI, JobView, plain
from ddplaunch.agent.system import phrases
from ddplaunch.report.pictures import svg
from ddplaunch.report.pictures.svg import Picture
from ddplaunch.report.words import count, some

NAME = "where-ways-part"
TITLE = "Where the ranks diverge"
_WIDTH, _LEFT, _GAP = 1040, 64, 24
_ROW, _HIGH = 40, 30
_BEFORE, _AFTER = 4, 2
_COLUMNS = 3
_BY_LINE = {"collective-skipped", "exception-swallowed"}
"""Verdicts on ranks whose calls also differ in their lines. For other verdicts, a root may have its own
line."""

Calls = Mapping[int, Collective]
"""The calls of one rank in one group, by their sequence numbers."""


class Way(NamedTuple):
    """Ranks that made the same call at the number where the ranks diverge. `call` None: they made none."""

    ranks: list[int]
    culprit: bool
    call: Collective | None
    calls: Calls  # the first rank's
    place: str  # where it is, in words
    site: Frame | None  # the line of that place
    numbered: bool = True  # MPI's calls are not

    def shown(self) -> str:
        if not self.numbered:
            return self.place
        return described(self.call) if self.call else f"never called: {self.place}"


class Parting(NamedTuple):
    """The number of a group's call at which ranks go different ways; None: it is MPI, and where they
    are now.
    """

    group: str
    number: int | None
    ways: list[Way]


def find(view: JobView, verdict: Verdict) -> Parting | None:
    """Return where the culprits' calls differ from the others'; None if no record shows it."""
    culprits = set(verdict.ranks) & set(view.ranks)
    mismatch = collectives.find_mismatch(view) or collectives.find_mismatch(view, failed_too=True)
    for source in _sources(view):
        for group, its in sorted(source.items()):
            own = {rank: calls for rank, calls in its.items() if rank in culprits}
            if not own or len(its) < 2 or (mismatch is None and len(own) == len(its)):
                continue
            if mismatch is not None and mismatch.group != group:
                continue
            number = mismatch.number if mismatch else _first(its, verdict.code in _BY_LINE)
            parting = None if number is None else _parted(view, culprits, group, number, its)
            if parting is not None:
                return parting
    return _in_mpi(view, culprits)


def _in_mpi(view: JobView, culprits: set[int]) -> Parting | None:
    """Return the MPI calls that ranks are in, if the culprits' differ from the others'."""
    calls: dict[tuple[bool, str], list[int]] = {}
    inside = {rank for rank in view.alive if view.locations[rank].kind == IN_MPI}
    for rank in view.alive if inside else ():
        words = mpi.described(view, rank) if rank in inside else str(view.locations[rank])
        calls.setdefault((rank in culprits, words), []).append(rank)
    ways = [
        Way(ranks, culprit, None, {}, words, view.locations[ranks[0]].site, numbered=False)
        for (culprit, words), ranks in sorted(calls.items(), key=lambda item: (not item[0][0], -len(item[1])))
    ]
    if len({way.place for way in ways}) < 2 or not any(way.culprit for way in ways):
        return None
    return Parting("", None, ways)


def picture(parting: Parting | None) -> Picture | None:
    """Return the columns of calls; None if no record shows a parting."""
    if parting is None:
        return None
    ways = parting.ways[:_COLUMNS]
    width = (_WIDTH - _LEFT - _GAP * (len(ways) - 1)) / len(ways)
    numbers = _numbers(parting)
    parts = []
    for row, number in enumerate(numbers):
        y = 34 + row * _ROW
        parted = number == parting.number
        parts.append(
            svg.text(
                "now" if number is None else str(number),
                _LEFT - 14,
                y + 20,
                "bad" if parted else "quiet",
                "end",
            )
        )
        for column, way in enumerate(ways):
            parts.append(_cell(way, number, parting.number, _LEFT + column * (width + _GAP), y, width))
    for column, way in enumerate(ways):
        words = svg.fitted(_named(way), width)
        parts.append(svg.text(words, _LEFT + column * (width + _GAP), 18, "bad" if way.culprit else ""))
    label = (
        "Calls of MPI. Now: "
        if parting.number is None
        else f"Calls by their numbers. At number {parting.number}: "
    )
    label += "; ".join(f"{some('rank', way.ranks)}: {way.shown()}" for way in ways)
    notes = (
        ["Calls of MPI in which the ranks stand, with their lines. MPI's earlier calls are not recorded."]
        if parting.number is None
        else [
            f"Calls of {_group(parting.group)} by their number, with the line that made them.",
            "Each number must be the same call on all ranks.",
        ]
    )
    if len(parting.ways) > len(ways):
        rest = sum(len(way.ranks) for way in parting.ways[_COLUMNS:])
        notes.append(f"{count(rest, 'rank')} with calls of yet other kinds are not drawn.")
    return Picture(NAME, TITLE, svg.drawing(label, _WIDTH, 40 + len(numbers) * _ROW, parts), notes)


def described(call: Collective) -> str:
    """Return 'all_reduce [8] (train.py:9)'."""
    sizes = " ".join(str(size) for size in call.sizes[:2] if size)
    return f"{plain(call.op)}{' ' + sizes if sizes else ''}{phrases.at(stacks.user_frame(call.frames))}"


def _sources(view: JobView) -> list[dict[str, dict[int, dict[int, Collective]]]]:
    """Return the calls of each group and rank, from torch's recorder and from the hook's ring."""
    found = []
    for entries in (
        {number: rank.collectives for number, rank in view.ranks.items()},
        {number: rank.calls for number, rank in view.ranks.items()},
    ):
        groups: dict[str, dict[int, dict[int, Collective]]] = {}
        for number, its in entries.items():
            for call in its:
                if not call.p2p:
                    groups.setdefault(call.group, {}).setdefault(number, {})[call.seq] = call
        found.append(groups)
    return found


def _first(its: Mapping[int, Calls], by_line: bool) -> int | None:
    """Return the first number that not all ranks have called, or not in the same way; None: they all
    agree.
    """
    start = max(min(calls) for calls in its.values())
    for number in range(start, max(max(calls) for calls in its.values()) + 1):
        if len({_key(calls.get(number), by_line) for calls in its.values()}) > 1:
            return number
    return None


def _key(call: Collective | None, by_line: bool) -> tuple[object, ...]:
    if call is None:
        return ()
    frame = stacks.user_frame(call.frames) if by_line else None
    return plain(call.op), frame and (frame.file, frame.line)


def _parted(
    view: JobView, culprits: set[int], group: str, number: int, its: Mapping[int, Calls]
) -> Parting | None:
    found: dict[tuple[bool, object], list[int]] = {}
    for rank, calls in its.items():
        call = calls.get(number)
        if call is None and number < max(calls):
            continue  # it is no longer recorded
        key = described(call) if call else (None, str(view.locations[rank]))
        found.setdefault((rank in culprits, key), []).append(rank)
    ways = [_way(view, culprit, ranks, number, its) for (culprit, _), ranks in found.items()]
    ways.sort(key=lambda way: (not way.culprit, -len(way.ranks), way.ranks))
    if len(ways) < 2 or len({way.shown() for way in ways}) < 2 or not any(way.culprit for way in ways):
        return None
    return Parting(group, number, ways)


def _way(view: JobView, culprit: bool, ranks: list[int], number: int, its: Mapping[int, Calls]) -> Way:
    calls = its[ranks[0]]
    call, location = calls.get(number), view.locations[ranks[0]]
    place = f"it is in {location}"
    if not view.ranks[ranks[0]].alive:
        end = view.ranks[ranks[0]].exit
        place = f"it ended, {phrases.exited(end)}" if end else "it is gone"
    site = (stacks.user_frame(call.frames) if call else None) or location.site
    return Way(ranks, culprit, call, calls, place, site)


def _numbers(parting: Parting) -> list[int] | list[None]:
    """Return the numbers to draw: those around the parting that are known of a rank."""
    if parting.number is None:
        return [None]
    known = {number for way in parting.ways[:_COLUMNS] for number in way.calls} | {parting.number}
    around = range(parting.number - _BEFORE, parting.number + _AFTER + 1)
    return [number for number in around if number in known]


def _cell(way: Way, number: int | None, parted: int | None, x: float, y: float, width: float) -> Markup:
    call = None if number is None else way.calls.get(number)
    if call is None:
        if number != parted:
            return Markup("")
        words = way.shown()
    else:
        words = described(call)
    tone = "box culprit" if number == parted and way.culprit else "box" if number == parted else "same"
    bold = "bad" if number == parted and way.culprit else "" if number == parted else "quiet"
    return svg.tag(
        "g",
        svg.title(f"{some('rank', way.ranks)}, {'now' if number is None else f'call {number}'}: {words}"),
        svg.tag("rect", x=x, y=y, width=width, height=_HIGH, rx=4, class_=tone),
        svg.text(svg.fitted(words, width - 20), x + 10, y + 20, bold),
    )


def _named(way: Way) -> str:
    name = some("rank", way.ranks)
    return f"{name} (culprit)" if way.culprit else name


def _group(name: str) -> str:
    return "the default group" if name in ("0", "") else f"group {name}"
