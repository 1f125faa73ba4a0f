"""Rules about ranks that ended well, or are ending, while others need them; where a rank called sys.exit.

What ended badly is in `ends`, which asks here where the exit code comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Optional

from ddplaunch.agent.contract import AnyFact, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import branches, call_records, signals, stacks, ties
from ddplaunch.agent.diagnosis.run.causes import (
    TOGETHER,
    complaint,
    is_consequence,
    leaves_for_peer,
    left_behind,
    words_of,
)
from ddplaunch.agent.diagnosis.run.view import IN_EXIT, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, say

_LAST_WORDS = 5.0
"""Seconds before the end of a rank within which what it prints may say why it ends."""


def rank_exited_early(view: JobView) -> Optional[Verdict]:
    """Return the verdict on exit code 0 while others wait, or have since failed because their peer was gone.

    Or a rank is about to end: its Python shuts down, or its process group is destroyed. On a busy machine,
    torch's own end takes many seconds, in which no stack can be had, and the rank looks starved.
    """
    lost = left_behind(view)
    ends = {
        number: rank.exit.at
        for number, rank in view.ranks.items()
        if rank.exit is not None and rank.exit.code == 0 and view.has_called_less(number, lost)
        if not leaves_for_peer(rank)
    }
    gone = [
        number
        for number, at in ends.items()
        if lost and number not in lost and at <= max(lost.values()) + TOGETHER
    ]
    leaving = _leaving(view, lost) if lost and not gone else []
    gone = gone or leaving
    if not gone:
        return None
    # Once one rank has failed because its peer is gone, the job ends for all that were not done.
    victims = sorted(lost) if lost.keys() <= {*view.waiting} else view.victims_of(gone)
    waiting = view.groups_of_ranks([rank for rank in victims if rank in view.waiting])
    tail = f"in {next(iter(waiting))}" if len(waiting) == 1 else "in their collectives"
    ending = (
        f"still wait{'s' if len(victims) == 1 else ''} {tail}"
        if waiting
        else "needed it"
        if len(gone) == 1
        else "needed them"
    )
    facts: list[AnyFact] = [*view.standing(waiting)]
    facts += [
        f"rank {number}: its process group is destroyed, or its Python shuts down" for number in leaving
    ]
    facts += [
        f"rank {number} failed {phrases.span(at - ends[gone[0]])} later: {complaint(view.ranks[number])}"
        for number, at in lost.items()
        if number not in view.waiting and not leaving
    ]
    keeps = ((number, ties.awaited_at_end(view, number)) for number in leaving[:4])
    facts += [f"rank {number}: its Python {each.text}" for number, each in keeps if each is not None]
    facts += [fact for number in gone[:4] for fact in _last_of(view, number)]
    at_once = all((end := view.ranks[number].exit) is not None and end.at_once for number in gone)
    where = where_left(view, gone)
    how = f" called {where}, while " if where else " finished normally (exit code 0) while "
    if leaving:
        how = f" {phrases.one_or(gone, 'is', 'are')} ending while "
    elif at_once and not where:
        how = " ended with exit code 0, and without the end of Python, as os._exit(0) ends it, while "
    left = view.ranks[gone[0]].left[0].frames if where else []
    loop, ways_out = branches.loop_left_by_others(view, victims, left)
    place = f"{',' if waiting else ''} in {loop}" if loop else ""
    came = None if leaving else signals.ended_after(view, {number: ends[number] for number in gone})
    why: list[Sayable] = [
        f"; {text}" for text in branches.perhaps([] if at_once or came is not None else ways_out)
    ]
    why += [say("; ", came)] if came is not None else []
    return view.verdict(
        code="rank-exited-early",
        sentence=say(
            subjects.ranks(gone),
            how,
            subjects.ranks(victims),
            f" {ending}{place}",
            *why,
        ),
        ranks=gone,
        victims=victims,
        confidence=sure.LEAVING if leaving else sure.OWN_END,
        facts=[*facts, *view.counts()],
        hint=_hint(gone, where, at_once) if came is None else signals.LEAVE_TOGETHER,
    )


def _hint(gone: Sequence[int], where: str, at_once: bool) -> str:
    """`where`: as `where_left` says; `at_once`: without the end of Python."""
    first = f"Find out why {subjects.ranks(gone)} ended first: "
    if at_once and not where:
        return (
            first + "os._exit, of which no traceback tells, is often called by a thread that watches the "
            "others, or in a handler. Let it print why it does that."
        )
    if where:
        return "If a rank has to end early, let all ranks agree on it first: all_reduce a flag, for example."
    return (
        first + "a `return` or `sys.exit(0)` that the others do not reach, or fewer batches. Against the "
        "latter, use DistributedSampler (drop_last=True), or wrap the loop in "
        "torch.distributed.algorithms.join.Join."
    )


def _last_of(view: JobView, number: int) -> list[AnyFact]:
    """Return the last call of a rank that has ended well, and what it has printed shortly before its end."""
    rank = view.ranks[number]
    printed = rank.exit is not None and abs(rank.exit.at - rank.last_output_at) < _LAST_WORDS
    said = (
        [f"rank {number}'s last line: {phrases.clipped(rank.last_output)}"]
        if printed and rank.last_output
        else []
    )
    return [*view.last_call(number), *said]


def group_destroyed(view: JobView) -> Optional[Verdict]:
    """Return the verdict on living ranks that have destroyed their process group, where others have since
    failed in a collective of it, which these have not called.
    """
    failed = {
        number: rank.calls[-1]
        for number, rank in view.ranks.items()
        if rank.calls and rank.calls[-1].state == "raised" and not rank.calls[-1].p2p
        if any(is_consequence(raised) for raised in rank.raised if not raised.handled)
    }
    left = {
        number: rank.calls[-1]
        for number, rank in view.ranks.items()
        if rank.initialized is False and rank.rendezvous is not None and rank.rendezvous.passed and rank.calls
        if all(raised.handled for raised in rank.raised) and (rank.exit is None or rank.exit.by_us)
    }
    if not left or not failed:
        return None
    call = next(iter(failed.values()))
    is_same = all((its.group, its.seq) == (call.group, call.seq) for its in failed.values())
    is_behind = all(its.group == call.group and 0 <= its.seq < call.seq for its in left.values())
    if not (is_same and is_behind):
        return None
    last = call_records.described(left[min(left)])
    return view.verdict(
        code="rank-exited-early",
        sentence=say(
            subjects.ranks(left),
            f" destroyed {phrases.one_or([*left], 'its', 'their')} process group after {last}, while ",
            subjects.ranks(failed),
            f" needed {phrases.one_or([*left], 'it', 'them')} in {call_records.described(call)}",
        ),
        ranks=[*left],
        victims=view.victims_of([*left]),
        confidence=sure.LEAVING,
        facts=[f"rank {number} failed: {complaint(view.ranks[number])}" for number in [*failed][:4]],
        hint="No rank may call destroy_process_group before all others have made their last collective: "
        "let all ranks agree when to stop.",
    )


def _leaving(view: JobView, lost: Collection[int]) -> list[int]:
    """Return the ranks that have left their process group, and raised nothing, while others wait there."""
    return [
        number
        for number in view.alive
        if view.locations[number].kind == IN_EXIT
        and number not in lost
        and all(raised.handled for raised in view.ranks[number].raised)
        and view.has_called_less(number, lost)
    ]


# --- where a rank called sys.exit or os._exit


def where_left(view: JobView, numbers: Sequence[int], within: bool = True) -> str:
    """Return how all these ranks left: 'sys.exit(3) (train.py:57), in the branch of train.py:55 (`if x`)'.

    Without the branch, or the handler, if not `within`; "" if it is not known of all, or not the same.
    """
    found = {_call_of_exit(view, number, within) for number in numbers}
    return found.pop() if len(found) == 1 else ""


def _call_of_exit(view: JobView, number: int, within: bool) -> str:
    """Return "" if a library has called it, as click does: it does so at every end."""
    left = view.ranks[number].left
    site = stacks.user_frame(left[0].frames) if left else None
    if site is None or site != left[0].frames[0]:
        return ""
    around = _within(view, number) if within else ""
    return f"{left[0].type}({left[0].message}){phrases.at(site)}{around}"


def _within(view: JobView, number: int) -> str:
    """', in the handler of ValueError: no data (train.py:40)', or the nearest branch on the way, if any."""
    handled = view.ranks[number].left[1:2]
    if handled:
        kind, at = handled[0].type.rpartition(".")[2], phrases.at(stacks.user_frame(handled[0].frames))
        said = f": {phrases.clipped(words_of(handled[0]), 120)}" if handled[0].message else ""
        return f", in the handler of {kind}{said}{at}"
    way = stacks.users(view.ranks[number].left[0].frames)
    around = next((its for frame in way if (its := branches.around(view, number, frame))), "")
    return f", in {around}" if around else ""
