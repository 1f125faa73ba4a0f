"""group-in-two-threads: two threads of a rank call collectives of one process group at once.

torch numbers the calls of a group as they come. Which of two threads comes first is chance, and each rank
has its own. Where ranks differ, the collective of the one thread meets that of the other. The usual case is
a checkpoint that is gathered in a thread beside training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Collective, Fact, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import blocked, call_records, collectives, stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import say

_CHECKPOINT = re.compile(r"(^|/)torch/distributed/checkpoint/")
_OF_ASYNC_SAVE = " torch's `async_save` takes the group as `process_group=group`."


class _Pair(NamedTuple):
    """Two calls of a rank in one group, of which the second began while the first had not returned."""

    first: Collective
    second: Collective


def group_in_two_threads(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks whose threads called the same two collectives in different orders.

    Calls that overlap and have the same order everywhere do no harm yet, and explain nothing.
    """
    pairs = {rank: [*_overlapping(view.ranks[rank])] for rank in view.ranks}
    inside = {rank: [*its, *_beside_torchs_own(view.ranks[rank])] for rank, its in pairs.items()}
    return (
        _crossed_in_calls(view, pairs) or _crossed_inside(view, inside) or _crossed_unrecorded(view, inside)
    )


def _crossed_in_calls(view: JobView, pairs: Mapping[int, Sequence[_Pair]]) -> Optional[Verdict]:
    """Return the verdict if the program's own calls have another order on another rank."""
    for rank, pair in ((rank, pair) for rank, its in pairs.items() for pair in its):
        group, lines = (
            pair.first.group,
            (_line(pair.first), _line(pair.second)),
        )
        members = [each for each in view.members.get(group, view.world) if each in view.ranks]
        numbers = pair.first.seq, pair.second.seq
        orders = {
            each: tuple(_line_at(view.ranks[each], group, number) for number in numbers) for each in members
        }
        same = [each for each, order in orders.items() if order == lines]
        other = [each for each, order in orders.items() if order == lines[::-1]]
        if same and other:
            facts = [_in_order(view, each, pair) for each in (same[0], other[0])]
            return _verdict(view, rank, pair, same, other, facts)
    return None


def _crossed_inside(view: JobView, pairs: Mapping[int, Sequence[_Pair]]) -> Optional[Verdict]:
    """Return the verdict if they have one order, and what torch makes of them has not.

    all_gather_object, for example, gathers twice, and DDP reduces in backward. Ranks that stand in the same
    two calls differ in which of them has come next.
    """
    mismatch = collectives.find_mismatch(view) if any(pairs.values()) else None
    if mismatch is None or len(mismatch.camps) != 2:
        return None
    there = {
        rank: {frozenset([_line(pair.first), _line(pair.second)]): pair for pair in its if _stands_in(pair)}
        for rank, its in pairs.items()
    }
    few, many = sorted(mismatch.camps.values(), key=lambda ranks: (len(ranks), ranks))
    for rank in few:
        for lines, pair in there[rank].items():
            if pair.first.group == mismatch.group and any(lines in there[other] for other in many):
                return _verdict(view, rank, pair, few, many, mismatch.facts(view))
    return None


def _crossed_unrecorded(view: JobView, pairs: Mapping[int, Sequence[_Pair]]) -> Optional[Verdict]:
    """Return the verdict if all ranks stand in the same two calls of one group, and torch records no calls.

    Neither call lacks a rank. If both came in one order everywhere, the first would return.
    """
    if view.waiting != view.world or view.stuck_for < view.evidence.notice_after or view.unseen:
        return None
    if not all(view.ranks[rank].unrecorded for rank in view.world):
        return None
    both = {
        rank: [pair for pair in pairs[rank] if _stands_in(pair) and pair.first.group == "0"]
        for rank in view.world
    }
    lines = {frozenset(map(_line, pair)) for its in both.values() for pair in its}
    if len(lines) != 1 or any(len(its) != 1 for its in both.values()):
        return None
    first = min(view.world)
    return _verdict(view, first, both[first][0], [], sorted(view.world), [])


def _stands_in(pair: _Pair) -> bool:
    return (pair.first.state, pair.second.state) == ("entered", "entered")


def _overlapping(rank: RankEvidence) -> Iterator[_Pair]:
    """Yield the pairs of calls that only two threads can have made: each returns when its collective is done.

    Pairs that are both over have done no harm that anybody waits for. A call without a line of the program
    must be seen in a thread.
    """
    states = ("entered", "returned", "raised")
    calls = [call for call in rank.calls if not call.p2p and call.state in states]
    calls = [call for call in calls if call.frames or call_records.in_other_thread(rank, call)]
    for place, first in enumerate(calls):
        for second in calls[place + 1 :]:
            alike = first.group == second.group and _line(first) != _line(second)
            over = (first.state, second.state) == ("returned", "returned")
            if alike and not over and _was_open(first, second.at):
                yield _Pair(first, second)


def _beside_torchs_own(rank: RankEvidence) -> Iterator[_Pair]:
    """Yield the open calls of other threads, each with the collective of torch's own that the main one is in.

    The ring has no such collective, and does not know its group. torch's recorder must have two open calls.
    If it records none, no other group may have an open one.
    """
    main = stacks.main(rank.stacks)
    function, line = stacks.torchs_own(main), stacks.user_frame(main)
    if function is None or line is None:
        return
    opened = {group.name for group in rank.groups if group.enqueued > group.completed}
    for call in rank.calls:
        waiting = [each for each in rank.collectives if each.group == call.group and not each.done]
        known = opened == {call.group} if rank.unrecorded else len(waiting) > 1
        if known and call.state == "entered" and call_records.in_other_thread(rank, call):
            yield _Pair(call, Collective(call.group, 0, function, frames=[line], state="entered"))


def _was_open(call: Collective, at: float) -> bool:
    """Whether it had been entered and had not returned; when it raised is not recorded."""
    return call.state == "entered" or (call.took is not None and call.at <= at < call.at + call.took)


def _verdict(
    view: JobView, number: int, pair: _Pair, some: list[int], others: list[int], facts: list[Fact]
) -> Verdict:
    """Return the verdict on ranks of two orders; without `some`, which of them had which is not known."""
    ranks = sorted([*some, *others])
    both = [
        f"{call.op}{phrases.at(stacks.user_frame(call.frames))}{_thread(view.ranks[number], call)}"
        for call in pair
    ]
    few, many = sorted((some, others), key=lambda each: (len(each), each))
    orders = say("on ", subjects.ranks(few), " they came in another order than on ", subjects.ranks(many))
    if not few:
        orders = say("all ranks are in both, so they have not come in one order everywhere")
    return view.verdict(
        code="group-in-two-threads",
        sentence=say(
            "two threads of a rank call collectives of ",
            blocked.who(view, pair.first.group),
            f" at once: {both[0]} and {both[1]}; ",
            orders,
        ),
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=sure.THREADS_CROSS if few else sure.THREADS_CROSS_UNSEEN,
        facts=[*facts, *view.whereabouts(ranks)[:4]],
        hint=call_records.OWN_GROUP + (_OF_ASYNC_SAVE if _saves(view.ranks[number], pair) else ""),
    )


def _in_order(view: JobView, number: int, pair: _Pair) -> Fact:
    """'rank 1 called all_gather_object 34 (train.py:8), then all_reduce 35 (train.py:61)'."""
    calls = {call.seq: call for call in view.ranks[number].calls if _is_of(call, pair.first.group)}
    first, second = (call_records.described(calls[each.seq]) for each in pair)
    return view.fact(f"rank {number} called {first}, then {second}", "the hook's ring", [number], "calls")


def _is_of(call: Collective, group: str) -> bool:
    return call.group == group and not call.p2p


def _line_at(rank: RankEvidence, group: str, number: int) -> object:
    calls = [call for call in rank.calls if _is_of(call, group) and call.seq == number]
    return _line(calls[0]) if calls else None


def _line(call: Collective) -> call_records.CallLine:
    """Return its line; the operation alone for a call that torch makes in a thread of its own."""
    return call_records.call_line(call) if call.frames else (call.op, "", 0)


def _thread(rank: RankEvidence, call: Collective) -> str:
    """Return ' in thread "saver"', if exactly one thread of the rank is at the line of the call."""
    there = call_records.thread_in(rank, call)
    if there is None or not there.thread:
        return ""
    return f" in {there.thread}" if there.thread == "MainThread" else f' in thread "{there.thread}"'


def _saves(rank: RankEvidence, pair: _Pair) -> bool:
    """Whether torch itself makes one of the calls, to save a checkpoint."""
    found = [call_records.thread_in(rank, call) for call in pair if not call.frames]
    return any(_CHECKPOINT.search(frame.file) for stack in found if stack for frame in stack.frames)
