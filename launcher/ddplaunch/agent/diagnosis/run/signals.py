"""Signals that ranks have got and handle themselves, such as a scheduler's before it ends a job.

A handler sets a flag, and each rank sees the flag in a different step: the first to see it leaves its loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import RankEvidence, Signalled
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects

_SOON = 30.0
"""Seconds after a signal within which a rank may have acted on it."""
LEAVE_TOGETHER = (
    "Each rank acts on the signal in a step of its own. Let all agree before one leaves: an all_reduce of "
    "the flag in each step, and all leave when one has got it."
)


def left_for(view: JobView, ranks: Sequence[int]) -> Optional[str]:
    """Return 'SIGTERM (stop, train.py:16)', if all these ranks got it before the call in which they wait."""
    found = [_before_call(view, rank) for rank in ranks]
    names = {phrases.signal_name(each.number) for each in found if each is not None}
    if None in found or len(names) != 1 or found[0] is None:
        return None
    return names.pop() + by(found[0])


def facts(view: JobView) -> list[str]:
    """'ranks 0-3 got SIGTERM 21 s ago, which stop (train.py:16) handles'."""
    came: dict[str, list[int]] = {}
    ages: dict[str, float] = {}
    for rank in view.alive:
        for each in view.ranks[rank].signals:
            what = phrases.signal_name(each.number) + by(each)
            came.setdefault(what, []).append(rank)
            ages.setdefault(what, view.nodes[view.node_of[rank]].at - each.at)
    return [f"{subjects.ranks(its)} got {what} {phrases.span(ages[what])} ago" for what, its in came.items()]


def by(signalled: Signalled) -> str:
    """' (stop, train.py:16)', the function that handles it."""
    handler = signalled.handler
    return "" if handler is None else f" ({handler.name}, {handler.file.rpartition('/')[2]}:{handler.line})"


def _before_call(view: JobView, number: int) -> Optional[Signalled]:
    rank = view.ranks[number]
    entered = rank.calls[-1].at if rank.calls and rank.calls[-1].state == "entered" else 0.0
    return before(rank, entered)


def before(rank: RankEvidence, at: float) -> Optional[Signalled]:
    """Return the signal that the rank has got shortly before this moment; None: none."""
    soon = [each for each in rank.signals if at - _SOON <= each.at <= at]
    return soon[-1] if soon else None
