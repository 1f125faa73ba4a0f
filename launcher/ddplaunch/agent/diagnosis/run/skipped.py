"""collective-skipped: a rank has left out a collective, or made one more, and has been out of step since.

Either its calls are those of the others, except for some that it left out, made twice or made in between; or
it has left a loop in which the others still are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import AnyFact, Collective, Frame, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import blocked, branches, call_order, call_records, causes, signals, stacks
from ddplaunch.agent.diagnosis.run.collectives import Mismatch, find_mismatch
from ddplaunch.agent.diagnosis.run.view import JobView, plain
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Text, joined, say

_OF_RANK = re.compile(r"(?i)\b(local_|global_|world_)?rank\b|get_rank|is_\w*(main|master|chief|rank_)")
"""In a condition: it holds on some ranks only, and in each round on the same ones."""


def collective_skipped(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks whose calls are the others', except for some left out or made twice."""
    groups = sorted({call.group for rank in view.ranks.values() for call in rank.calls})
    for group in groups:
        histories = call_order.histories_of(view, group)
        found = call_order.out_of_step(view, group, histories)
        if found:
            return _skip_verdict(view, group, found, histories)
    return None


def skipped_in_words(view: JobView) -> Optional[Verdict]:
    """Return the same if a rank has ended because its call did not fit its peer's, and said so."""
    return collective_skipped(view) if causes.mismatch_reports(view) else None


def _may_be_why(view: JobView, rank: int, other: int, step: call_order.Step) -> tuple[list[str], str]:
    """Return the branches that may lead past the call that was left out, or back to the one made again; and
    what of these is said in the hint.
    """
    if step.left_out is not None:
        return branches.exits(view, other, step.left_out.frames[0]), "What may lead past it"
    if step.now is not None and step.now.frames and not step.own_line:
        return branches.brought_back(view, rank, step.now.frames[0]), "What may have led back to it"
    return [], ""


def _skip_verdict(
    view: JobView, group: str, found: dict[int, call_order.Step], histories: Sequence[call_order.CallHistory]
) -> Verdict:
    ranks = sorted(found)
    step = found[ranks[0]]
    has, they = phrases.one_or(ranks, "has", "have"), phrases.one_or(ranks, "it", "they")
    count = phrases.count(abs(step.ahead), "call")
    if step.left_out is not None and step.now is not None and _at_once_again(view, group, ranks, step):
        sentence = say(
            subjects.ranks(ranks),
            f" called {_described(step.now)} twice in a row, and the others called "
            f"{_described(step.left_out)} after the first",
        )
        hint = (
            f"Look for a retry around {_described(step.now)}, or for a branch around "
            f"{_described(step.left_out)}, that depends on the rank or on its data."
        )
    elif step.left_out is not None and step.now is not None:
        more = f" and {step.ahead - 1} more" if step.ahead > 1 else ""
        sentence = say(
            subjects.ranks(ranks),
            f" {has} left out {_described(step.left_out)}{more}: at that place {they} called "
            f"{_described(step.now)}, and {has} been {count} ahead of the others since",
        )
        hint = (
            f"Look for a branch, a `continue` or a `return` around {_described(step.left_out)} that depends "
        )
        hint += "on the rank or on its data: every rank must call it, each time."
    elif step.since and step.now is not None:
        sentence = say(
            subjects.ranks(ranks),
            f" {has} called {_described(step.now)} once more than the others, and {has} been {count} "
            "behind them since",
        )
        hint = f"Look for a repetition around {_described(step.now)} that depends on the rank or on its data."
        if step.own_line:
            hint = (
                f"The others did not come to {_described(step.now)} there: look for the branch around it, "
                "which depends on the rank or on its data."
            )
    else:
        sentence = say(
            subjects.ranks(ranks),
            f" {has} been {count} out of step with the others since an earlier round: "
            f"{phrases.one_or(ranks, 'its', 'their')} calls are those that the others make {count} "
            f"{'later' if step.ahead > 0 else 'earlier'}",
        )
        hint = "Look for a branch that depends on the rank or on its data around the calls named here."
    others = [rank for rank in view.members.get(group, view.world) if rank not in found]
    calls = {rank: each.calls for each in histories for rank in each.ranks}
    choice: Optional[branches.Choice] = None
    module: list[Text] = []
    past: list[str] = []
    if step.since:
        few, many = (
            {rank: calls[rank][step.number] for rank in those if step.number in calls.get(rank, ())}
            for those in (ranks, others)
        )
        choice = branches.find_of(view, *((few, many) if step.left_out is None else (many, few)))
        now = all(step.number == max(calls[rank]) for rank in (*few, *many))
        freed = branches.finalizer(view, few, many) if now else []
        module = freed or (branches.module(view, few, many) if now else [])
        hint = branches.NOT_IN_FINALIZER if freed else hint
        past, led = ([], "") if choice is not None else _may_be_why(view, ranks[0], others[0], step)
        order = branches.one_order(view, few, many) if now and choice is None and not freed else ""
        if order:
            sentence = say(sentence, f"; both calls come from {order}")
            hint = branches.OTHER_ORDER.format(order)
        hint = f"{branches.file_hint(view, choice)}{hint}"
        if past:
            hint += f" {led}: {', '.join(past)}."
    started = branches.started_with(view, ranks, others) if choice is None else []
    facts: list[AnyFact] = [
        f"{subjects.ranks(those)}: call {number} of the program is {_described(calls[those[0]][number])}"
        for number in range(step.number, step.number + 3)
        for those in (ranks, others)
        if those and number in calls.get(those[0], ())
    ]
    if choice is not None and choice.branch.kind == "except":
        facts += view.last_lines(choice.ranks)  # of what it handles, often
    sure_of_it = sure.OUT_OF_STEP_SINCE if step.since else sure.OUT_OF_STEP
    return view.verdict(
        code="collective-skipped",
        sentence=joined(
            "; ", [sentence, *module, *branches.called(view, choice), *branches.perhaps(past), *started]
        ),
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=sure_of_it if step.certain else sure.OUT_OF_STEP_PERHAPS,
        facts=[*facts, *view.counts()],
        hint=hint,
    )


def _at_once_again(view: JobView, group: str, ranks: Sequence[int], step: call_order.Step) -> bool:
    """Whether the call that parts these ranks from the others follows the same one much sooner than before.

    By their order alone, a rank that leaves out the other call of a loop with two of them does the same as
    one that tries the first again.
    """
    return all(_is_again(view, group, rank, step.number) for rank in ranks)


def _is_again(view: JobView, group: str, rank: int, number: int) -> bool:
    its = view.ranks[rank].calls
    calls = {call.seq: call for call in its if call.group == group and call.frames and not call.p2p}
    if number not in calls:
        return False
    line = call_records.call_line(calls[number])
    same = sorted(each for each, call in calls.items() if call_records.call_line(call) == line)
    before = [calls[each].at for each in same if each <= number][-3:]
    if len(before) < 3 or number - 1 not in same:
        return False
    return 2 * (before[2] - before[1]) < before[1] - before[0]


def _described(call: Collective) -> str:
    return f"{plain(call.op)}{phrases.at(stacks.user_frame(call.frames))}"


def loop_left(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that have left a loop while the others call its collectives.

    If a loop in any function on the way were around both, it would be open which rank is a round ahead.
    """
    mismatch = find_mismatch(view)
    if mismatch is None or view.unseen:
        return None
    histories = call_order.histories_of(view, mismatch.group)
    if call_order.parted_earlier(histories):
        return None
    ranks = sorted(rank for camp in mismatch.camps.values() for rank in camp)
    there = [
        rank
        for rank in ranks
        if rank in view.waiting
        and blocked.is_held(view, rank)
        and (not mismatch.number or view.locations[rank].number in (None, mismatch.number))
    ]
    places = {rank: _way_in(view, rank) for rank in there}
    if there != ranks or not all(places.values()):
        return None
    for camp in mismatch.camps.values():
        others = [rank for rank in places if rank not in camp]
        pairs = [(places[rank], places[other], other) for rank in camp for other in others]
        loops = {_left(view, mine, theirs, other) for mine, theirs, other in pairs}
        if len(loops) == 1 and None not in loops and len(mismatch.camps) == 2:
            everyone = len(call_order.members_of(view, mismatch.group))
            whole = call_order.size(histories) == everyone and all(min(each.calls) == 1 for each in histories)
            loop = loops.pop()
            if loop is None or _is_for_one_rank(view, mismatch, others, camp):
                return None
            return _left_verdict(view, mismatch, camp, others, loop, whole)
    return None


def _is_for_one_rank(view: JobView, mismatch: Mismatch, inside: Sequence[int], left: Sequence[int]) -> bool:
    """Whether the call in the loop is in a branch on the rank: then the others never make it, in any round.

    They may have left the loop at its end, as rank 0 would have done without this call of its own.
    """
    own, others = ({rank: mismatch.calls.get(rank) for rank in those} for those in (inside, left))
    choice = branches.find_of(view, own, others)
    tests = [choice.branch, *(each for _, each in choice.within)] if choice is not None else []
    return any(_OF_RANK.search(each.text) for each in tests)


def _way_in(view: JobView, rank: int) -> list[Frame]:
    """Return the user's frames of the main thread, outermost first."""
    frames = stacks.main(view.ranks[rank].stacks) if view.ranks[rank].alive else []
    return stacks.users(frames)[::-1]


class _Loop(NamedTuple):
    """The lines of a loop."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        """'(train.py:19-24)'."""
        last = f"-{self.last}" if self.last > self.first else ""
        return f"({self.file.rpartition('/')[2]}:{self.first}{last})"


def _left(view: JobView, mine: list[Frame], theirs: list[Frame], other: int) -> Optional[_Loop]:
    """Return the loop that `mine` is behind and `theirs` in; None: there is none."""
    loops = view.nodes[view.node_of[other]].loops
    for own, its in zip(mine, theirs):
        file = stacks.shared(own.file)
        around = [(first, last) for first, last in loops.get(its.file, []) if first <= its.line <= last]
        both = [each for each in around if file == stacks.shared(its.file) and each[0] <= own.line <= each[1]]
        if (own.name, file) != (its.name, stacks.shared(its.file)) or both or its.file not in loops:
            return None
        if own.line != its.line:
            first, last = max(around, default=(0, 0), key=lambda each: each[1])
            return _Loop(file, first, last) if around and own.line > last else None
    return None


def _left_verdict(
    view: JobView, mismatch: Mismatch, ranks: list[int], others: list[int], loop: _Loop, whole: bool
) -> Verdict:
    """`whole`: all calls of the group are known since its first, so that no earlier one can differ."""
    has, is_ = phrases.one_or(ranks, "has", "have"), phrases.one_or(ranks, "is", "are")
    rest = phrases.one_or(others, "is", "are")
    signal = signals.left_for(view, ranks)
    own, rest_of = ({rank: mismatch.calls.get(rank) for rank in those} for those in (ranks, others))
    exits = branches.ends_of(view, ranks[0], loop.file, [loop.first, loop.last])
    exits += branches.ways_past(view, own, rest_of, guards=False)
    hint = branches.UNEVEN + (f" {branches.ALSO_ENDS.format(', '.join(exits))}" if exits else "")
    sentence = say(
        subjects.ranks(ranks),
        f" {has} left the loop {loop} and {is_} in {view.locations[ranks[0]]}, while ",
        subjects.ranks(others),
        f" {rest} still in it, in {view.locations[others[0]]}",
        *(f"; {text}" for text in branches.perhaps(exits)),
        *(part for text in branches.started_with(view, ranks, others) for part in ("; ", text)),
    )
    if signal is not None:
        sentence = say(
            signal,
            "; ",
            subjects.ranks(ranks),
            f" left the loop {loop} before {view.locations[others[0]]}, in which ",
            subjects.ranks(others),
            f" {phrases.one_or(others, 'waits', 'wait')}, and {is_} in {view.locations[ranks[0]]}",
        )
    return view.verdict(
        code="collective-skipped",
        sentence=sentence,
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=sure.LOOP_LEFT if whole else sure.LOOP_LEFT_PERHAPS,
        facts=[
            *signals.facts(view),
            *mismatch.facts(view),
            *view.own_last_lines(ranks),
            *([] if mismatch.number else view.counts()),
        ],
        hint=signals.LEAVE_TOGETHER if signal is not None else hint,
    )
