"""async-not-waited: a rank began an operation asynchronously, never waited for it, and ended too early.

Python frees the work, and the process its connections, as soon as the program is over. The hook's ring shows
whether `wait` was called, and which operation of a peer lacked this one.
"""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Collective, Verdict
from ddplaunch.agent.diagnosis.run import blocked, call_records
from ddplaunch.agent.diagnosis.run.causes import left_behind
from ddplaunch.agent.diagnosis.run.job_view import JobView


def async_not_waited(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a rank that ended well, with an operation open in which a peer needs it."""
    for peer in left_behind(view):
        calls = view.ranks[peer].calls
        if not calls or calls[-1].state not in ("entered", "waiting", "raised"):
            continue
        need = calls[-1]
        for rank in [need.peer] if need.p2p else view.members.get(need.group, []):
            if rank is None or rank not in view.ranks or not _ended_well(view, rank):
                continue
            call = _open(view, peer, need, rank)
            if call is not None:
                return _verdict(view, rank, call, peer, need)
    return None


def _ended_well(view: JobView, rank: int) -> bool:
    end = view.ranks[rank].exit
    return end is not None and end.code == 0


def _open(view: JobView, peer: int, need: Collective, rank: int) -> Optional[Collective]:
    """Return the call of `rank` that belongs to what `peer` needs, if it was issued and never waited for."""
    if not need.p2p:
        mine = [
            call
            for call in view.ranks[rank].calls
            if not call.p2p and (call.group, call.seq, call.op) == (need.group, need.seq, need.op)
        ]
    elif blocked.from_the_first(view, peer, need.group) and blocked.from_the_first(view, rank, need.group):
        mine = [call for call in view.ranks[rank].calls if blocked.serves(call, need, peer)]
        wanted = [call for call in view.ranks[peer].calls if _like(call, need)]
        if len(mine) != len(wanted) or -1 in {call.peer for call in [*mine, *wanted]}:
            return None
    else:
        return None
    return mine[-1] if mine and mine[-1].state == "issued" else None


def _like(call: Collective, need: Collective) -> bool:
    direction = blocked.way(call) if call.p2p else ""
    return (direction, call.group, call.peer, call.tag) == (
        blocked.way(need),
        need.group,
        need.peer,
        need.tag,
    )


def _verdict(view: JobView, rank: int, call: Collective, peer: int, need: Collective) -> Verdict:
    place, needs = call_records.described(call), call_records.described(need)
    return view.verdict(
        code="async-not-waited",
        sentence=f"rank {rank} began {place}, never waited for it, and ended (exit code 0): rank {peer} "
        f"needs it in {needs}",
        ranks=[rank],
        victims=view.victims_of([rank]),
        confidence=0.9,
        facts=[
            f"rank {rank}'s last call of its kind is {place}, and its `wait` was not called",
            *(f"rank {number} is in {view.locations[number]}" for number in view.waiting[:4]),
        ],
        hint=f"Keep the work that {call.op} returns, and call its wait() before the program ends or the "
        f"tensor is used again: work = dist.{call.op}(...); work.wait().",
    )
