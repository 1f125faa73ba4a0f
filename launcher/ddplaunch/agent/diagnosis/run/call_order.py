"""Where the sequences of calls part: what each rank has called in a group, aligned with what the others have.

For the rules on skipped and on mismatched collectives. Everything here is about one group, and says nothing.

The hook's ring has the user's line of each call. The calls of all ranks of a group are compared number by
number, from the oldest that is known of all. Where the lines differ for the first time, and go on to
differ, the ranks went apart, however long ago that is. The calls in which they are now are only a
consequence. Ranks whose lines differ at a single number need not be wrong: a root may have a line of its
own.

From that call on, each other rank's calls are compared with the majority's, shifted by a few either way. A
shift at which all lines agree says how many calls were left out, or made twice. Comparing numbers alone
would call a rank that is one ahead wrong at every later call. A shift needs several calls that agree,
because any shift fits a loop with one call. If the others are stuck, and there are no later calls to
compare, their earlier rounds show what would come next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import CallSequence, Collective
from ddplaunch.agent.diagnosis.run import call_records, stacks
from ddplaunch.agent.diagnosis.run.view import JobView, plain

_FARTHEST = 3
"""How many collectives a rank may be ahead of the others, or behind them."""
ROOTED = re.compile(r"(broadcast|scatter|gather|reduce)(_object_list|_object)?")
"""Calls that one rank may make from a line of its own, as the root."""
ALIKE = frozenset(
    ["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_single"]
)
"""Collectives whose tensors must be alike on all ranks. In others the root's, or every rank's, may differ."""
_LONG = 4
"""Calls that must agree if it is not known when the rank got out of step."""

Calls = dict[int, Collective]
"""Calls of one rank, by their sequence numbers in the group."""


class CallHistory(NamedTuple):
    """The calls of these ranks in a group, as far back as their lines are known."""

    calls: Calls
    ranks: list[int]


@dataclass(frozen=True)
class Step:
    """A rank out of step since call `number`: it left out `ahead` calls, or repeated them if negative."""

    number: int
    ahead: int
    since: bool  # it was in step before
    left_out: Optional[Collective] = None
    now: Optional[Collective] = None
    own_line: bool = False  # the others did not reach the line of `now`
    certain: bool = True  # otherwise `now` may be the call that the others made there from another line


def histories_of(view: JobView, group: str) -> list[CallHistory]:
    """Return the calls of the group, once for all ranks that made the same ones, as most of thousands do.

    They are known as far back as the ring's sequence goes, from the last call without a line; without one,
    only the last calls are known.
    """
    found: dict[object, CallHistory] = {}
    nothing = CallSequence(group, 0, [], [])
    for rank in members_of(view, group):
        known = next((each for each in view.ranks[rank].sequences if each.group == group), nothing)
        numbers = range(known.first, known.first + len(known.calls))
        calls = [call for call in view.ranks[rank].calls if call.group == group and not call.p2p]
        last = {call.seq: call for call in calls if not numbers or call.seq > numbers[-1]}
        # The sequence has no shapes. Those of the calls in which ranks have met last tell them apart.
        shaped = {
            call.seq: call for call in calls[-1 - _FARTHEST :] if call.seq in numbers and call.op in ALIKE
        }
        if not numbers and not last:
            continue
        content = (
            numbers,
            tuple((site.op, stacks.shared(site.line.file), site.line.line) for site in known.sites),
            tuple(known.calls),
            tuple(
                (number, call_records.call_line(call) if call.frames else None)
                for number, call in last.items()
            ),
            tuple((number, str(call.sizes)) for number, call in shaped.items()),
        )
        if content not in found:
            sites = [known.sites[place] if 0 <= place < len(known.sites) else None for place in known.calls]
            earlier = {
                number: Collective(group, number, site.op, frames=[site.line])
                for number, site in zip(numbers, sites)
                if site is not None
            }
            found[content] = CallHistory({**earlier, **shaped, **last}, [])
        found[content].ranks.append(rank)
    return [*found.values()]


def members_of(view: JobView, group: str) -> list[int]:
    """Return the ranks of the group for which there is evidence."""
    return [rank for rank in view.members.get(group, view.world) if rank in view.ranks]


def size(camp: Sequence[CallHistory]) -> int:
    """Return how many ranks are in these."""
    return sum(len(each.ranks) for each in camp)


def camps_at(histories: Sequence[CallHistory], number: int) -> dict[call_records.CallLine, list[CallHistory]]:
    """Return those that have made the call with this number, by its line."""
    camps: dict[call_records.CallLine, list[CallHistory]] = {}
    for each in histories:
        if number in each.calls:
            camps.setdefault(call_records.call_line(each.calls[number]), []).append(each)
    return camps


def lined(calls: Calls) -> bool:
    """Whether all have a line, and none is missing in between."""
    return all(call.frames for call in calls.values()) and max(calls) - min(calls) == len(calls) - 1


def out_of_step(view: JobView, group: str, histories: Sequence[CallHistory]) -> dict[int, Step]:
    """Return the ranks of a group that are out of step with a majority of its ranks, which agree."""
    members = view.members.get(group, view.world)
    calls = [each.calls for each in histories]
    if sum(len(each.ranks) for each in histories) < 2 or not all(map(lined, calls)):
        return {}
    first, last = max(map(min, calls)), max(map(max, calls))
    for number in range(first, last + 1):
        camps = camps_at(histories, number)
        if len(camps) < 2:
            continue
        most = max(camps.values(), key=size)
        found = {}
        if 2 * size(most) > len(members):
            normal = max((each.calls for each in most), key=max)
            for each in (each for camp in camps.values() if camp is not most for each in camp):
                step = _step(each.calls, normal, number, number > first)
                found.update(dict.fromkeys(each.ranks, step) if step is not None else {})
        # If they agree again after it, a root, or a branch, has a line of its own for the same call.
        if found or len({call_records.call_line(its[number + 1]) for its in calls if number + 1 in its}) != 1:
            return found
    return {}


def _step(mine: Calls, normal: Calls, number: int, since: bool) -> Optional[Step]:
    """Return how these calls differ from the others', from `number` on; None: not by a shift.

    If the calls after `number` are equal, that call only has a line of its own. A single call that agrees is
    enough if the two at `number` are different operations, which cannot be meant for one another.
    """
    after = [each for each in mine if each > number and each in normal]
    if after and all(
        call_records.call_line(mine[each]) == call_records.call_line(normal[each]) for each in after
    ):
        return None
    own = mine.get(number)
    apart = own is not None and number in normal and own.op != normal[number].op
    as_root = own is not None and not apart and ROOTED.fullmatch(plain(own.op))
    for ahead in range(1, _FARTHEST + 1):
        for shift in (ahead, -ahead):
            enough = _LONG if not since else 1 if apart and shift > 0 else 2
            if _agreed(mine, normal, number, shift) >= enough:
                left = normal.get(number) if since and shift > 0 else None
                return Step(number, shift, since, left, own)
        # Its own calls in between, from a line that the others do not reach: from then on it is behind.
        agreed = _agreed(mine, normal, number + ahead, -ahead) if since and not as_root else 0
        if agreed >= 2 or (agreed and _stopped_there(mine, normal, number + ahead)):
            return Step(number, -ahead, since, None, own, own_line=True, certain=apart)
    return _in_rounds(mine, normal, number) if since else None


def _stopped_there(mine: Calls, normal: Calls, number: int) -> bool:
    """Whether calls that cannot be meant for one another met at `number`, after one that only one side makes.

    Then a single later call that agrees is enough: there are no more, because these two never end.
    """
    lines = {call_records.call_line(each) for each in normal.values()}
    met = number == max(mine) and number in normal and not _may_meet(mine[number], normal[number])
    return met and call_records.call_line(mine[number - 1]) not in lines


def _may_meet(one: Collective, other: Collective) -> bool:
    """Whether one may be meant for the other: the same operation, with the same shapes if it needs them."""
    shapes = one.op in ALIKE and one.sizes and other.sizes and one.sizes != other.sizes
    return one.op == other.op and not shapes


def _one_more(mine: Calls, normal: Calls, number: int) -> bool:
    """Whether all calls are the others', but for the one at `number`, from a line that they do not reach."""
    own = mine[number]
    reached = any(call_records.call_line(own) == call_records.call_line(each) for each in normal.values())
    as_root = ROOTED.fullmatch(plain(own.op)) is not None
    whole = max(mine) - max(normal) == 1 and not reached and not as_root
    return whole and _agreed(mine, normal, number + 1, -1) >= max(2, max(mine) - number)


def _agreed(mine: Calls, normal: Calls, number: int, shift: int) -> int:
    """Return how many calls from `number` on are what the others made `shift` later; 0 if one is not."""
    pairs = [(mine[each], normal.get(each + shift)) for each in sorted(mine) if each >= number]
    known = [(own, other) for own, other in pairs if other is not None]
    same = all(call_records.call_line(own) == call_records.call_line(other) for own, other in known)
    return len(known) if same and known and pairs[0][1] is not None else 0


def _in_rounds(mine: Calls, normal: Calls, number: int) -> Optional[Step]:
    """Return the step of a rank at a call that the others, in every round before, have made a little later.

    The others are stuck at `number`, so their next calls follow from their rounds, at least two equal ones.
    The same operation from another line may be meant for it.
    """
    if max(mine) > number or max(normal) > number or mine[number].op == normal[number].op:
        return None
    for length in range(2, number):
        rounds = [number - length * each for each in (1, 2)]
        if min(rounds) - 1 not in normal:
            return None
        if any(
            call_records.call_line(normal[number - back])
            != call_records.call_line(normal[number - back - length])
            for back in range(length + 1)
        ):
            continue
        for ahead in range(1, min(length, _FARTHEST + 1)):
            if call_records.call_line(normal[number - length + ahead]) == call_records.call_line(
                mine[number]
            ):
                return Step(number, ahead, True, normal[number], mine[number])
        return None
    return None


def parted_earlier(histories: Sequence[CallHistory]) -> bool:
    """Whether lines differ before the ranks' last calls, and the next ones do too.

    Then the ranks went apart there, and a rank that seems to be out of the loop may have been one call ahead
    since. At a single call, a root may have a line of its own.
    """
    calls = [each.calls for each in histories if lined(each.calls)]
    if not calls:
        return False
    if parted_by_a_call(histories) is not None:
        return True
    apart = [
        len({call_records.call_line(its[number]) for its in calls}) > 1
        for number in range(max(map(min, calls)), min(map(max, calls)))
    ]
    return any(one and next_one for one, next_one in zip(apart, apart[1:]))


def parted_by_a_call(
    histories: Sequence[CallHistory], ended: Sequence[int] = ()
) -> Optional[tuple[int, list[int]]]:
    """Return the first number at which there are two camps, and the ranks that made a call more since then.

    A number at which a rank has a line of its own for the same call is passed over: the next calls agree. But
    if the other camp has ended, and a call too early, that call was one more.
    """
    if len(histories) < 2 or not all(lined(each.calls) for each in histories):
        return None
    calls = [each.calls for each in histories]
    first, last = max(map(min, calls)), min(map(max, calls))
    for number in range(first, last + 1):
        camps = camps_at(histories, number)
        if len(camps) < 2:
            continue
        if len(camps) == 2 and (number > first or first == 1):
            for one, other in (camps.values(), [*camps.values()][::-1]):
                pairs = [(mine, theirs) for mine in one for theirs in other]
                over = all(rank in ended for theirs in other for rank in theirs.ranks)
                if over and all(_one_more(mine.calls, theirs.calls, number) for mine, theirs in pairs):
                    return number, sorted(rank for mine in one for rank in mine.ranks)
                steps = [_step(mine.calls, theirs.calls, number, since=True) for mine, theirs in pairs]
                ahead = {step.ahead > 0 for step in steps if step is not None}
                if None not in steps and len(ahead) == 1:
                    more = other if ahead.pop() else one
                    return number, sorted(rank for each in more for rank in each.ranks)
        if len({call_records.call_line(its[number + 1]) for its in calls if number + 1 in its}) != 1:
            return None
    return None
