"""rank-failed for living ranks: they have raised, but what runs before they may end does not return.

That is a `finally`, an `except` that raises again or ends the process, or the end of a `with`: it flushes,
joins a thread, or calls a collective to which no other rank comes any more. The exception is the cause,
wherever the ranks are now.
"""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Raised, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.causes import (
    Held,
    first_held,
    same_failure,
    site_of,
    words_of,
)
from ddplaunch.agent.diagnosis.run.stragglers import holder_facts
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Text, joined, say

_STILL = 0.7
"""Share of the patience for which a rank must have done nothing; otherwise it may be about to end."""


def exception_held(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that have raised, and are still in what runs before they may end."""
    patience = _STILL * view.evidence.notice_after
    still = [rank for rank in view.alive if view.ranks[rank].stuck_for >= patience]
    found = {rank: its for rank in still if (its := held_back(view, rank)) is not None}
    if not found:
        return None
    same: dict[str, list[int]] = {}
    for rank, its in found.items():
        same.setdefault(same_failure(its.raised), []).append(rank)
    ranks = sorted(found, key=lambda rank: (rank in view.waiting, rank))
    first = found[ranks[0]]
    raised = joined("; ", [raised_by(view, its, found[its[0]].raised) for its in same.values()][:3])
    site = stacks.user_frame(first.raised.frames)
    others = [rank for rank in view.stragglers if rank not in found]
    return view.verdict(
        code="rank-failed",
        sentence=say(raised, f", and `{first.kind}` holds it back: ", joined("; ", view.places(ranks)[:3])),
        ranks=sorted(found),
        victims=view.victims_of(sorted(found)),
        confidence=sure.RAISED_BESIDE_ANOTHER if others else sure.RAISED_AND_HELD,
        facts=[
            f"rank {ranks[0]} raised it in {stacks.chain(first.raised.frames)}",
            f"rank {ranks[0]} is in the `{first.kind}` around it, at {phrases.place(first.line)}",
            *view.whereabouts(others)[:2],
            *holder_facts(view, ranks[:1]),
        ],
        hint=f"Fix {phrases.place(site) if site else 'what the traceback names'}. So that a failure ends "
        f"the job at once, let nothing in `{first.kind}` wait for ever, and call no collective there.",
    )


def raised_by(view: JobView, ranks: list[int], raised: Raised) -> Text:
    """'rank 3 raised ValueError: no such token (train.py:61)'."""
    who = "all ranks" if view.is_everyone(ranks) else subjects.ranks(ranks)
    message = f": {phrases.clipped(words_of(raised))}" if raised.message else ""
    kind = raised.type.rpartition(".")[2]
    return say(who, f" raised {kind}{message}{phrases.at(site_of(raised))}")


def held_back(view: JobView, number: int) -> Optional[Held]:
    """Return the first exception that is held back; None if it came from a peer that is gone."""
    return first_held(view, number, stacks.main(view.ranks[number].stacks))
