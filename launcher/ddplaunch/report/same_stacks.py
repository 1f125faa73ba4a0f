"""Merges ranks whose main threads stand in the same stack, and puts the odd ones first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ddplaunch.agent.contract import Frame, Raised, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases


@dataclass(frozen=True)
class Line:
    """A frame as a page shows it. `own`: of the user's code; `text`: its source, where it is known."""

    place: str
    own: bool
    text: str = ""


@dataclass(frozen=True)
class Trace:
    """A stack that several ranks have."""

    name: str  # of the thread, or the exception
    ranks: list[int]
    lines: list[Line]


@dataclass(frozen=True)
class Group:
    """Ranks that stand in the same place; `place` is where."""

    ranks: list[int]
    culprit: bool
    place: str
    sources: list[str]  # that their stacks come from
    traces: list[Trace] = field(default_factory=list)  # the main thread first


def groups(view: JobView, culprits: Sequence[int]) -> list[Group]:
    """Return the ranks with a stack, those at fault first, then the fewest."""
    found: dict[tuple[bool, str, tuple[Frame, ...]], list[RankEvidence]] = {}
    for number, rank in view.ranks.items():
        if rank.stacks or rank.raised or any(child.stacks for child in rank.children):
            key = (number in culprits, str(view.locations[number]), tuple(stacks.main(rank.stacks)))
            found.setdefault(key, []).append(rank)
    merged = [_group(view, culprit, place, ranks) for (culprit, place, _), ranks in found.items()]
    return sorted(merged, key=lambda group: (not group.culprit, len(group.ranks), group.ranks))


def _group(view: JobView, culprit: bool, place: str, ranks: list[RankEvidence]) -> Group:
    threads: dict[tuple[str, bool, tuple[Frame, ...]], list[int]] = {}
    for rank in ranks:
        for name, main, frames in [*_threads(rank.stacks), *_raised(rank.raised), *_children(rank)]:
            threads.setdefault((name, main, tuple(frames)), []).append(rank.rank)
    order = sorted(threads.items(), key=lambda item: not item[0][1])
    traces = [
        Trace(name, sorted(set(its)), [_line(view, its[0], frame) for frame in frames])
        for (name, _, frames), its in order
    ]
    sources = sorted({rank.stack_source for rank in ranks if rank.stack_source})
    return Group([rank.rank for rank in ranks], culprit, place, sources, traces)


def _threads(threads: Sequence[Stack], before: str = "") -> list[tuple[str, bool, list[Frame]]]:
    return [
        (f"{before}thread {each.thread}{' (main)' * each.main}", each.main and not before, each.frames)
        for each in threads
    ]


def _children(rank: RankEvidence) -> list[tuple[str, bool, list[Frame]]]:
    return [
        thread
        for child in rank.children
        for thread in _threads(child.stacks, f"child {child.pid} {child.role}, ".replace(" ,", ","))
    ]


def _raised(exceptions: Sequence[Raised]) -> list[tuple[str, bool, list[Frame]]]:
    return [(f"{each.type}: {each.message}", False, each.frames) for each in exceptions]


def _line(view: JobView, rank: int, frame: Frame) -> Line:
    own = stacks.is_own([frame])
    name = frame.name if frame.name != "<module>" else "the script"
    return Line(f"{name}  {frame.file}:{frame.line}", own, view.line_of(rank, frame))


def place(view: JobView, rank: int) -> str:
    """Return the innermost place in the user's own code; the collective shows where in torch a rank waits."""
    frames = stacks.main(view.ranks[rank].stacks)
    frame = stacks.user_frame(frames) or next(iter(frames), None)
    return phrases.place(frame) if frame else ""
