"""The lines of code that a verdict is about: where the culprits are, and where the others wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ddplaunch.agent.contract import Frame
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import ENDED, IN_COLLECTIVE, IN_INIT, IN_MPI, JobView
from ddplaunch.report.pictures import calls
from ddplaunch.report.scene import Scene
from ddplaunch.report.words import some

_MOST = 3
_CULPRITS = 2


class Spot(NamedTuple):
    """A line of code, and who is there. `text` is empty where the line's source was not read."""

    who: str
    culprit: bool
    doing: str
    file: str
    line: int
    function: str
    text: str


def spots(scene: Scene) -> list[Spot]:
    """Return the culprits' lines, then the others'."""
    view, verdict, parting = scene.view, scene.verdict, scene.parting
    if view is None or verdict is None:
        return []
    found = list(_of_ways(view, parting)) if parting else []
    if not any(spot.culprit for spot in found):
        found = list(_of_ranks(view, verdict.ranks, True))[:_CULPRITS]
        others = [rank for rank in view.waiting if rank not in verdict.ranks]
        found += _of_ranks(view, others, False)
    return found[:_MOST]


def _of_ways(view: JobView, parting: calls.Parting) -> Iterable[Spot]:
    for way in parting.ways:
        if way.site is not None:
            if not way.numbered:
                doing = f"in {way.place}"
            elif way.call:
                doing = f"called {calls.described(way.call)}"
            else:
                doing = f"never got to call {parting.number}"
            yield _spot(view, way.ranks, way.culprit, doing, way.site)


def _of_ranks(view: JobView, ranks: Iterable[int], culprits: bool) -> Iterable[Spot]:
    """Yield the places of these ranks, that of the most first."""
    found: dict[tuple[str, Frame], list[int]] = {}
    for rank in ranks:
        known = _place(view, rank) if rank in view.ranks else None
        if known is not None:
            found.setdefault(known, []).append(rank)
    for (doing, site), its in sorted(found.items(), key=lambda item: -len(item[1])):
        yield _spot(view, its, culprits, doing, site)


def _place(view: JobView, rank: int) -> tuple[str, Frame] | None:
    """Return what a rank does and its line; of an ended one its exception's or last call's."""
    location = view.locations[rank]
    if location.site is not None:
        if location.kind == ENDED:
            return "with an exception from", location.site
        waits = location.kind in (IN_COLLECTIVE, IN_INIT, IN_MPI)
        return "waiting in" if waits else "in", location.site
    recorded = view.ranks[rank].calls
    site = stacks.user_frame(recorded[-1].frames) if recorded else None
    return None if site is None else ("last seen to call from", site)


def _spot(view: JobView, ranks: list[int], culprit: bool, doing: str, site: Frame) -> Spot:
    function = "the script" if site.name == "<module>" else site.name
    text = next((text for rank in ranks if (text := view.line_of(rank, site))), "")
    return Spot(some("rank", ranks), culprit, doing, site.file, site.line, function, text)
