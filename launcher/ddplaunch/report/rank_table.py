"""Rows about ranks. Ranks that differ only in their times and their output share a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ddplaunch.agent.contract import Collective, Exited, Frame, Raised, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases
from ddplaunch.report.words import duration


@dataclass(frozen=True)
class Line:
    """A frame as a page shows it. `own`: it is in the user's code; `text`: its source, if that is known."""

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
    """Ranks that are in the same place. `place` says where."""

    ranks: list[int]
    culprit: bool
    place: str
    sources: list[str]  # the sources of their stacks
    traces: list[Trace] = field(default_factory=list)  # the main thread first


def groups(view: JobView, culprits: Sequence[int]) -> list[Group]:
    """Return the ranks that have a stack, those at fault first, then the smallest groups."""
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


def frame_place(view: JobView, rank: int) -> str:
    """Return the innermost place in the user's own code; the collective shows where in torch a rank waits."""
    frames = stacks.main(view.ranks[rank].stacks)
    frame = stacks.user_frame(frames) or next(iter(frames), None)
    return phrases.place(frame) if frame else ""


_OUTPUT = 200
_MOVES, _STILL = "moves", "no progress"


class Row(NamedTuple):
    """Ranks and what they have in common. `tone` is that of their state, `call_tone` that of their last
    call.
    """

    ranks: list[int]
    nodes: list[int]
    culprit: bool
    phase: str
    state: str
    tone: str
    call: str
    call_tone: str
    where: str
    output: str  # the last line of the first rank


def rows(view: JobView, culprits: Sequence[int]) -> list[Row]:
    """Return a row for each rank."""
    return [_row(view, [number], number in culprits) for number in view.ranks]


def merged(view: JobView, culprits: Sequence[int]) -> list[Row]:
    """Return one row for all ranks that are alike, culprits first, then the smallest groups."""
    found: dict[tuple[object, ...], list[int]] = {}
    for number, rank in view.ranks.items():
        call = last_call(rank)
        key = (number in culprits, rank.phase, state(rank)[0], call, frame_place(view, number))
        found.setdefault(key, []).append(number)
    whole = [_row(view, ranks, bool(key[0])) for key, ranks in found.items()]
    return sorted(whole, key=lambda row: (not row.culprit, len(row.ranks), row.ranks))


def _row(view: JobView, numbers: list[int], culprit: bool) -> Row:
    first = view.ranks[numbers[0]]
    word, tone = state(first)
    if word == _STILL:
        times = sorted({duration(view.ranks[each].stuck_for) for each in numbers}, key=len)
        least = min(view.ranks[each].stuck_for for each in numbers)
        most = max(view.ranks[each].stuck_for for each in numbers)
        word += f" for {duration(least)}" + (f" to {duration(most)}" if len(times) > 1 else "")
    call, call_tone = last_call(first)
    return Row(
        numbers,
        view.nodes_of(numbers),
        culprit,
        first.phase,
        word,
        tone,
        call,
        call_tone,
        frame_place(view, numbers[0]),
        first.last_output[:_OUTPUT],
    )


def state(rank: RankEvidence) -> tuple[str, str]:
    """Return a rank's state, and the tone in which it is shown."""
    if rank.exit:
        return ended(rank.exit), "bad"
    if not rank.alive:
        return "gone", "bad"
    return (_MOVES, "good") if rank.stuck_for < 1 else (_STILL, "odd")


def ended(end: Exited) -> str:
    """Return how a process ended."""
    if end.signal is not None:
        how = f"killed by signal {end.signal}"
    else:
        how = "gone, nobody saw how" if end.code is None else f"exit code {end.code}"
    return f"{how}, stopped by its launcher" if end.by_us else how


def last_call(rank: RankEvidence) -> tuple[str, str]:
    """Return the newest call and its tone.

    torch's recorder and the ring each know calls that the other does not.
    """
    newest = sorted((rank.collectives[-1:] + rank.calls[-1:]), key=lambda call: -call.at)
    if not newest:
        return "", ""
    call = newest[0]
    sizes = " ".join(str(size) for size in call.sizes)
    word, tone = _outcome(rank, call)
    return " ".join(filter(None, (call.op, str(call.seq), sizes, word))), tone


def _outcome(rank: RankEvidence, call: Collective) -> tuple[str, str]:
    if call.done or call.state == "issued":
        return "done" if call.done else "issued", ""
    if call.state == "raised":
        return "failed", "bad"
    return ("waits", "odd") if rank.alive else ("had not returned", "")
