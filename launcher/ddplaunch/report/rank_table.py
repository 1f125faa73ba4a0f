"""Rows about ranks; those that differ in nothing but their times and their output share one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Collective, Exited, RankEvidence
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.report import same_stacks
from ddplaunch.report.words import duration

_OUTPUT = 200
_MOVES, _STILL = "moves", "no progress"


class Row(NamedTuple):
    """Ranks and what is common to them; `tone` is of their state, `call_tone` of their last call."""

    ranks: list[int]
    nodes: list[int]
    culprit: bool
    phase: str
    state: str
    tone: str
    call: str
    call_tone: str
    where: str
    output: str  # the last line of the first of them


def rows(view: JobView, culprits: Sequence[int]) -> list[Row]:
    """Return a row for each rank."""
    return [_row(view, [number], number in culprits) for number in view.ranks]


def merged(view: JobView, culprits: Sequence[int]) -> list[Row]:
    """Return a row for all ranks that are alike, culprits first, then the fewest."""
    found: dict[tuple[object, ...], list[int]] = {}
    for number, rank in view.ranks.items():
        call = last_call(rank)
        key = (number in culprits, rank.phase, state(rank)[0], call, same_stacks.place(view, number))
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
        same_stacks.place(view, numbers[0]),
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

    Torch's recorder and the ring each know calls that the other does not.
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
