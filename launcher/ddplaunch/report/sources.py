"""Lists what a diagnosis rests on, source by source, and what could not be seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ddplaunch.agent.contract import Frame, RankEvidence
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.unseen import unexplained
from ddplaunch.agent.diagnosis.run.view import ENDED, IN_COLLECTIVE, IN_INIT, IN_MPI, JobView
from ddplaunch.agent.system import phrases
from ddplaunch.report.pictures import Scene, calls
from ddplaunch.report.verdict import missing
from ddplaunch.report.words import count, some

_MOST = 3
_CULPRITS = 2


class Spot(NamedTuple):
    """A line of code, and which ranks are there. `text` is empty if the line's source was not read."""

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
    """Yield the places of these ranks, the one with the most ranks first."""
    found: dict[tuple[str, Frame], list[int]] = {}
    for rank in ranks:
        known = _spot_place(view, rank) if rank in view.ranks else None
        if known is not None:
            found.setdefault(known, []).append(rank)
    for (doing, site), its in sorted(found.items(), key=lambda item: -len(item[1])):
        yield _spot(view, its, culprits, doing, site)


def _spot_place(view: JobView, rank: int) -> tuple[str, Frame] | None:
    """Return what a rank does and its line. If the rank has ended, that is its exception's or last call's."""
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


class Source(NamedTuple):
    """A source of evidence: what it gave, and about which ranks."""

    name: str
    gave: str
    of: str


_STACKS = {
    "hook": "the hook in each rank",
    "py-spy": "py-spy",
    "debug server": "torch's debug server",
    "faulthandler": "faulthandler, by a signal",
}
_OF_RANKS: tuple[tuple[str, str, Callable[[RankEvidence], bool]], ...] = (
    (
        "torch's flight recorder",
        "collectives, with their numbers and states",
        lambda rank: bool(rank.collectives),
    ),
    (
        "the hook's ring",
        "the last calls of torch.distributed, with their lines",
        lambda rank: bool(rank.calls),
    ),
    ("torch's process groups", "counts of collectives called and completed", lambda rank: bool(rank.groups)),
    ("/proc", "state, CPU time, memory and traffic of the process", lambda rank: rank.process is not None),
    ("exit statuses", "how processes ended", lambda rank: rank.exit is not None),
    ("logs and exceptions", "exceptions", lambda rank: bool(rank.raised)),
    ("standard output", "last lines", lambda rank: bool(rank.last_output)),
    ("MPI's calls", "the function that has not returned", lambda rank: rank.mpi_call is not None),
)


def sources(scene: Scene) -> list[Source]:
    """Return the sources that gave something."""
    diagnosis, view = scene.diagnosis, scene.view
    found = []
    for name, shown in _STACKS.items():
        ranks = [number for number, rank in _ranks(view) if rank.stack_source == name]
        found += [Source(shown, "stacks of all threads", some("rank", ranks))] if ranks else []
    for shown, gave, has in _OF_RANKS:
        ranks = [number for number, rank in _ranks(view) if has(rank)]
        found += [Source(shown, gave, some("rank", ranks))] if ranks else []
    logs = [number for number, node in (view.nodes if view else {}).items() if node.kernel or node.xids]
    found += (
        [Source("the kernel's log", "lines that name the job's processes", some("node", logs))]
        if logs
        else []
    )
    bundle = diagnosis.bundle
    if bundle and bundle.check_ins:
        nodes = [each.node for each in bundle.check_ins]
        found.append(Source("the gate's checks", "what each node found of itself", some("node", nodes)))
    if bundle and (paths := len(bundle.mesh) + sum(map(len, bundle.passed.values()))):
        found.append(Source("the gate's paths", f"{count(paths, 'connection')} tried", "the nodes as pairs"))
    return found


def unseen(scene: Scene) -> list[str]:
    """Return what could not be seen, one sentence for each."""
    diagnosis, view = scene.diagnosis, scene.view
    evidence = diagnosis.evidence
    if evidence is None or view is None:
        return ["No evidence of ranks was taken."] if diagnosis.bundle else ["The job has left no bundle."]
    lost = {each.node for each in evidence.lost}
    silent = [node for node in unexplained(evidence) if node not in lost]
    lines = []
    if lost:
        lines.append(f"{some('node', lost)} stopped answering before the evidence was taken.")
    if silent:
        lines.append(f"{some('node', silent)} gave no evidence in time.")
    if view.unseen:
        lines.append(f"Of {some('rank', view.unseen)} nothing is known.")
    if view.absent:
        lines.append(f"Of {some('rank', view.absent)} no process was found.")
    blind = [rank for rank in view.alive if not view.ranks[rank].stacks]
    if blind:
        lines.append(f"Of {some('rank', blind)} no stack could be taken.")
    uncounted = [rank for rank in view.alive if not (view.ranks[rank].collectives or view.ranks[rank].calls)]
    if uncounted:
        lines.append(f"Of {some('rank', uncounted)} no calls of torch.distributed are recorded.")
    return lines + [f"{phrases.clipped(text, 400)}" for text in missing(diagnosis)]


def _ranks(view: JobView | None) -> list[tuple[int, RankEvidence]]:
    return list(view.ranks.items()) if view else []
