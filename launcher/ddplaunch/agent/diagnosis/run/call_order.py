"""collective-skipped: a rank passed by a collective, and what it calls since are not the others' calls.

The hook's ring has the user's line of each call. Ranks whose lines differ at one number need not be wrong: a
root may have a line of its own. Out of step is a rank whose calls are those of the others, but for some that
it left out or made twice; or one that has left a loop in which the others still are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Collective, Frame, Verdict
from ddplaunch.agent.diagnosis.run import blocked, collectives, stacks
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import plain
from ddplaunch.agent.system import phrases, subjects

_FARTHEST = 3
"""Collectives that a rank may be ahead of the others, or behind."""
_LONG = 4
"""Calls that must agree where it is not known when the rank came out of step."""
_UNEVEN = (
    "The ranks do not get the same number of rounds. Give each as many batches: DistributedSampler with "
    "drop_last=True; or wrap the loop in torch.distributed.algorithms.join.Join, or let all agree to stop."
)

Line = tuple[str, str, int]
"""Operation, file and line of a call."""
Calls = dict[int, Collective]
"""Calls of one rank, by their sequence numbers in the group."""


@dataclass(frozen=True)
class _Step:
    """A rank out of step since call `number`: by `ahead` calls left out, or made once more if negative."""

    number: int
    ahead: int
    since: bool  # it was in step before
    left_out: Optional[Collective] = None
    now: Optional[Collective] = None


def collective_skipped(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks whose calls are the others', but for some left out, or made twice."""
    groups = sorted({call.group for rank in view.ranks.values() for call in rank.calls})
    for group in groups:
        found = _out_of_step(view, group)
        if found:
            return _verdict(view, group, found)
    return None


def _out_of_step(view: JobView, group: str) -> dict[int, _Step]:
    """Return the ranks of a group that are out of step with a majority of its ranks, which agree."""
    members = view.members.get(group, view.world)
    calls = {rank: _of(view, rank, group) for rank in members if rank in view.ranks}
    calls = {rank: its for rank, its in calls.items() if its}
    if len(calls) < 2 or not all(_lined(its) for its in calls.values()):
        return {}
    first = max(min(its) for its in calls.values())
    last = max(max(its) for its in calls.values())
    for number in range(first, last + 1):
        camps: dict[Line, list[int]] = {}
        for rank, its in calls.items():
            if number in its:
                camps.setdefault(_line(its[number]), []).append(rank)
        if len(camps) < 2:
            continue
        most = max(camps.values(), key=len)
        if 2 * len(most) <= len(members):
            return {}
        normal = max((calls[rank] for rank in most), key=max)
        steps = {
            rank: _step(calls[rank], normal, number, number > first)
            for ranks in camps.values()
            for rank in ranks
            if ranks is not most
        }
        return {rank: step for rank, step in steps.items() if step is not None}
    return {}


def _step(mine: Calls, normal: Calls, number: int, since: bool) -> Optional[_Step]:
    """Return how these calls differ from the others', from `number` on; None: not by a shift.

    Where the calls after `number` are equal, that one has only a line of its own. A single call that agrees
    counts where the two at `number` are of different operations: they cannot be meant for one another.
    """
    after = [each for each in mine if each > number and each in normal]
    if after and all(_line(mine[each]) == _line(normal[each]) for each in after):
        return None
    apart = number in mine and number in normal and mine[number].op != normal[number].op
    for ahead in range(1, _FARTHEST + 1):
        for shift in (ahead, -ahead):
            enough = _LONG if not since else 1 if apart and shift > 0 else 2
            if _agreed(mine, normal, number, shift) >= enough:
                left = normal.get(number) if since and shift > 0 else None
                return _Step(number, shift, since, left, mine.get(number))
    return _in_rounds(mine, normal, number) if since else None


def _agreed(mine: Calls, normal: Calls, number: int, shift: int) -> int:
    """Return how many calls from `number` on are what the others made `shift` later; 0 if one is not."""
    pairs = [(mine[each], normal.get(each + shift)) for each in sorted(mine) if each >= number]
    known = [(own, other) for own, other in pairs if other is not None]
    same = all(_line(own) == _line(other) for own, other in known)
    return len(known) if same and known and pairs[0][1] is not None else 0


def _in_rounds(mine: Calls, normal: Calls, number: int) -> Optional[_Step]:
    """Return the step of a rank at a call that the others, in every round before, have made a little later.

    They are stuck at `number`, so their next calls follow from the rounds: at least two equal ones. The same
    operation from another line may be meant for it.
    """
    if max(mine) > number or max(normal) > number or mine[number].op == normal[number].op:
        return None
    for length in range(2, number):
        rounds = [number - length * each for each in (1, 2)]
        if min(rounds) - 1 not in normal:
            return None
        if any(
            _line(normal[number - back]) != _line(normal[number - back - length])
            for back in range(length + 1)
        ):
            continue
        for ahead in range(1, min(length, _FARTHEST + 1)):
            if _line(normal[number - length + ahead]) == _line(mine[number]):
                return _Step(number, ahead, True, normal[number], mine[number])
        return None
    return None


def _verdict(view: JobView, group: str, found: dict[int, _Step]) -> Verdict:
    ranks = sorted(found)
    step = found[ranks[0]]
    has, they = phrases.one_or(ranks, "has", "have"), phrases.one_or(ranks, "it", "they")
    is_, count = phrases.one_or(ranks, "is", "are"), phrases.count(abs(step.ahead), "call")
    if step.left_out is not None and step.now is not None:
        more = f" and {phrases.count(step.ahead - 1, 'more')}" if step.ahead > 1 else ""
        sentence = (
            f"{subjects.ranks(ranks)} {has} left out {_described(step.left_out)}{more}: at that place {they} "
            f"called {_described(step.now)}, and {is_} {count} ahead of the others since"
        )
        hint = (
            f"Look for a branch, a `continue` or a `return` around {_described(step.left_out)} that depends "
        )
        hint += "on the rank or on its data: every rank must call it, each time."
    elif step.since and step.now is not None:
        sentence = (
            f"{subjects.ranks(ranks)} {has} called {_described(step.now)} once more than the others, and "
            f"{is_} {count} behind them since"
        )
        hint = f"Look for a repetition around {_described(step.now)} that depends on the rank or on its data."
    else:
        sentence = (
            f"{subjects.ranks(ranks)} {is_} {count} out of step with the others since an earlier round: "
            f"{phrases.one_or(ranks, 'its', 'their')} calls are those that the others make {count} "
            f"{'later' if step.ahead > 0 else 'earlier'}"
        )
        hint = "Look for a branch that depends on the rank or on its data around the calls named here."
    others = [rank for rank in view.members.get(group, view.world) if rank not in found]
    facts = []
    for each in range(step.number, step.number + 3):
        for those in (ranks, others):
            calls = [_of(view, rank, group).get(each) for rank in those]
            if calls and calls[0] is not None:
                facts.append(f"{subjects.ranks(those)}: call {each} of the program is {_described(calls[0])}")
    return view.verdict(
        code="collective-skipped",
        sentence=sentence,
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=0.95 if step.since else 0.85,
        facts=[*facts, *view.counts()],
        hint=hint,
    )


def _of(view: JobView, rank: int, group: str) -> Calls:
    return {call.seq: call for call in view.ranks[rank].calls if call.group == group and not call.p2p}


def _lined(calls: Calls) -> bool:
    """Whether all have a line, and none is missing in between."""
    return all(call.frames for call in calls.values()) and max(calls) - min(calls) == len(calls) - 1


def _line(call: Collective) -> Line:
    frame = call.frames[0]
    return call.op, stacks.shared(frame.file), frame.line


def _described(call: Collective) -> str:
    return f"{plain(call.op)}{phrases.at(stacks.user_frame(call.frames))}"


# --- a rank that has left a loop


def loop_left(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that came out of a loop while the others call its collectives.

    A loop around both, in any function on the way, would leave open who is a round ahead.
    """
    mismatch = collectives.find(view)
    if mismatch is None or view.unseen:
        return None
    ranks = sorted(rank for camp in mismatch.camps.values() for rank in camp)
    there = [
        rank
        for rank in ranks
        if rank in view.waiting
        and blocked.is_held(view, rank)
        and view.locations[rank].number in (None, mismatch.number)
    ]
    places = {rank: _way_in(view, rank) for rank in there}
    if there != ranks or not all(places.values()):
        return None
    for camp in mismatch.camps.values():
        others = [rank for rank in places if rank not in camp]
        pairs = [(places[rank], places[other], other) for rank in camp for other in others]
        loops = {_left(view, mine, theirs, other) for mine, theirs, other in pairs}
        if len(loops) == 1 and None not in loops and len(mismatch.camps) == 2:
            return _left_verdict(view, mismatch, camp, others, str(loops.pop()))
    return None


def _way_in(view: JobView, rank: int) -> list[Frame]:
    """Return the user's frames of the main thread, outermost first."""
    frames = stacks.main(view.ranks[rank].stacks) if view.ranks[rank].alive else []
    return stacks.users(frames)[::-1]


def _left(view: JobView, mine: list[Frame], theirs: list[Frame], other: int) -> Optional[str]:
    """Return the loop, '(train.py:19-24)', that `mine` is behind and `theirs` in; None: there is none."""
    loops = view.nodes[view.node_of[other]].loops
    for own, its in zip(mine, theirs):
        file = stacks.shared(own.file)
        around = [(first, last) for first, last in loops.get(its.file, []) if first <= its.line <= last]
        both = [each for each in around if file == stacks.shared(its.file) and each[0] <= own.line <= each[1]]
        if (own.name, file) != (its.name, stacks.shared(its.file)) or both or its.file not in loops:
            return None
        if own.line != its.line:
            first, last = max(around, default=(0, 0), key=lambda each: each[1])
            return f"({its.file.rpartition('/')[2]}:{first}-{last})" if around and own.line > last else None
    return None


def _left_verdict(
    view: JobView, mismatch: collectives.Mismatch, ranks: list[int], others: list[int], loop: str
) -> Verdict:
    has, is_ = phrases.one_or(ranks, "has", "have"), phrases.one_or(ranks, "is", "are")
    rest = phrases.one_or(others, "is", "are")
    return view.verdict(
        code="collective-skipped",
        sentence=f"{subjects.ranks(ranks)} {has} left the loop {loop} and {is_} in "
        f"{view.locations[ranks[0]]}, while {subjects.ranks(others)} {rest} still in it, in "
        f"{view.locations[others[0]]}",
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=0.9,
        facts=mismatch.facts,
        hint=_UNEVEN,
    )
