"""Signals that ranks have got and handle themselves, such as a scheduler's before it ends a job.

A handler sets a flag, and each rank sees the flag in a different step: the first to see it leaves its loop. A
handler that calls a collective itself calls it at another place on each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Signalled, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import call_records, stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, say

_SOON = 30.0
"""Seconds after a signal within which a rank may have acted on it."""
_ASK_TO_END = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU")
"""What schedulers, `timeout` and people send."""
_TIMERS = ("SIGALRM", "SIGVTALRM", "SIGPROF")
"""What a program sends itself, maybe a thousand times a second: only its handler can be to blame."""
LEAVE_TOGETHER = (
    "Each rank acts on the signal in a step of its own. Let all agree before one leaves: an all_reduce of "
    "the flag in each step, and all leave when one has got it."
)


_FLAG_ALONE = (
    "A handler runs between two lines of the program, on each rank between other ones: let it set a flag "
    "alone, and let all ranks agree on the flag in each step (all_reduce), before they act on it together."
)


def left_for(view: JobView, ranks: Sequence[int]) -> Optional[Text]:
    """Return 'SIGTERM came to all ranks at 12:00:03 (stop, train.py:16)'.

    None unless all these ranks got it shortly before the call in which they wait.
    """
    first = _same_before(view, {rank: _entered(view.ranks[rank]) for rank in ranks})
    return None if first is None else _came(view, first)


def ended_after(view: JobView, ends: Mapping[int, float]) -> Optional[Text]:
    """Return the same if a signal asked all these ranks to end shortly before they did: `ends`, by rank.

    Those that got it later do not count: a launcher ends the ranks that are left by a signal, too.
    """
    first = _same_before(view, ends)
    asked = first is not None and phrases.signal_name(first.number) in _ASK_TO_END
    return _came(view, first, max(ends.values())) if first is not None and asked else None


def _same_before(view: JobView, moments: Mapping[int, float]) -> Optional[Signalled]:
    """Return the first rank's signal if all these ranks got the same one shortly before their moments."""
    found = [before(view.ranks[rank], at) for rank, at in moments.items()]
    same = len({each.number if each else None for each in found}) == 1
    return found[0] if same else None


def _came(view: JobView, signalled: Signalled, until: float = inf) -> Text:
    same = {
        rank: each.at
        for rank, its in view.ranks.items()
        for each in its.signals
        if each.number == signalled.number and abs(each.at - signalled.at) <= _SOON and each.at <= until
    }
    whom: Sayable = "all ranks" if view.is_everyone([*same]) else subjects.ranks(same)
    name, at = phrases.signal_name(signalled.number), phrases.clock(min(same.values(), default=signalled.at))
    return say(f"{name} came to ", whom, f" at {at}{by(signalled)}")


class _Within(NamedTuple):
    """A rank that is in its handler of a signal, and the line where that has interrupted it."""

    signalled: Signalled
    line: Optional[Frame]


def told(view: JobView, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts; the first says which signals came shortly before progress stopped.

    The first that blames ranks inside a handler of a signal says that in its sentence.
    """
    recent = [each for each in facts(view) if verdicts and each not in verdicts[0].facts]
    return _with_handler(view, [each.with_facts(recent) for each in verdicts[:1]] + [*verdicts[1:]])


def decided(view: JobView, verdict: Verdict, *camps: Mapping[int, Optional[Collective]]) -> Verdict:
    """Return the verdict on camps that called different collectives. Of two as large, it names the one that a
    signal has led away: it came to all of these ranks shortly before the calls in which they are now, and to
    none of the others.
    """
    if verdict.ranks != view.world or verdict.confidence > sure.CALLS_IN_A_TIE:
        return verdict
    for camp in camps:
        signal = _same_before(view, {rank: _entered(view.ranks[rank]) for rank in camp})
        others = [rank for rank in view.world if rank not in camp]
        now = all(call is None or call_records.is_open(call) for call in camp.values())
        if signal is None or not now or any(_has_got(view, rank, signal.number) for rank in others):
            continue
        name, at = phrases.signal_name(signal.number), phrases.clock(signal.at)
        alone = say(f"; {name} came to ", subjects.ranks(camp), f" alone at {at}{by(signal)}")
        return replace(
            verdict.continued(alone),
            ranks=sorted(camp),
            nodes=view.nodes_of([*camp]),
            victims=others,
            confidence=sure.SIGNALLED_IN_A_TIE,
            hint=LEAVE_TOGETHER,
        )
    return verdict


def _has_got(view: JobView, rank: int, number: int) -> bool:
    return rank in view.ranks and any(each.number == number for each in view.ranks[rank].signals)


def _with_handler(view: JobView, verdicts: Sequence[Verdict]) -> list[Verdict]:
    found = {rank: its for rank in view.alive if (its := _within(view, rank)) is not None}
    said_of = []
    for verdict in verdicts:
        ranks = [rank for rank in found if rank in verdict.ranks]
        if ranks:
            its = found[ranks[0]]
            same = [rank for rank in ranks if found[rank].signalled.number == its.signalled.number]
            verb = phrases.one_or(same, "is", "are")
            where = f" and has interrupted {phrases.place(its.line)}" if its.line and len(same) == 1 else ""
            inside = f" {verb} there in the handler of {phrases.signal_name(its.signalled.number)}{where}; "
            said = say("; ", subjects.ranks(same), inside, _came(view, its.signalled))
            verdict = replace(verdict.continued(said), hint=_FLAG_ALONE)
            found = {}
        said_of.append(verdict)
    return said_of


def _within(view: JobView, number: int) -> Optional[_Within]:
    """Return the signal in whose handler the rank is; None: in none, or the program may have called it."""
    frames = stacks.main(view.ranks[number].stacks)
    for place, frame in enumerate(frames):
        for each in view.ranks[number].signals:
            handler = each.handler
            if handler is None or (handler.name, handler.file) != (frame.name, frame.file):
                continue
            if each.at >= _last_began(view.ranks[number]):
                return _Within(each, stacks.user_frame(frames[place + 1 :]))
    return None


def _last_began(rank: RankEvidence) -> float:
    """Return when the last call that has returned began: what comes during a call is handled after it.

    Of a rank whose calls only torch makes, as in backward, torch's own record says it.
    """
    over = [call.at for call in rank.calls if call.took is not None]
    if not rank.calls:
        over = [call.at for call in rank.collectives if call.done]
    return max(over, default=0.0 if rank.calls else float("inf"))


def facts(view: JobView) -> list[str]:
    """'ranks 0-3 got SIGTERM (stop, train.py:16) 21 s ago'.

    One that came long before progress stopped has done no harm.
    """
    came: dict[str, list[int]] = {}
    ages: dict[str, float] = {}
    for rank in view.alive:
        at = view.nodes[view.node_of[rank]].at
        for each in view.ranks[rank].signals:
            if each.at < at - view.stuck_for - _SOON or _is_of_timer(each):
                continue
            what = phrases.signal_name(each.number) + by(each)
            came.setdefault(what, []).append(rank)
            ages.setdefault(what, at - each.at)
    return [f"{subjects.ranks(its)} got {what} {phrases.span(ages[what])} ago" for what, its in came.items()]


def by(signalled: Signalled) -> str:
    """' (stop, train.py:16)', the function that handles it."""
    handler = signalled.handler
    return "" if handler is None else f" ({handler.name}, {handler.file.rpartition('/')[2]}:{handler.line})"


def _entered(rank: RankEvidence) -> float:
    """Return when the rank entered the call in which it waits; 0.0: it waits in none."""
    return rank.calls[-1].at if rank.calls and rank.calls[-1].state == "entered" else 0.0


def before(rank: RankEvidence, at: float) -> Optional[Signalled]:
    """Return the signal that the rank has got shortly before this moment; None: none."""
    soon = [each for each in rank.signals if at - _SOON <= each.at <= at and not _is_of_timer(each)]
    return soon[-1] if soon else None


def _is_of_timer(signalled: Signalled) -> bool:
    return phrases.signal_name(signalled.number) in _TIMERS
