"""Describes the last collective that a rank called; the hook's ring has it for a dead rank, too."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Collective, Frame, RankEvidence
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system import phrases


def last(rank: RankEvidence) -> list[str]:
    """'rank 2 was in recv from rank 0 (train.py:13)', as a fact; none where no call is known."""
    if not rank.calls:
        return []
    call = rank.calls[-1]
    place = described(call)
    if call.state in ("entered", "waiting"):
        return [f"rank {rank.rank} was in {place}"]
    return [f"rank {rank.rank} had come back from {place}"] if call.state == "returned" else []


def waited_for(rank: RankEvidence) -> Optional[Collective]:
    """Return the asynchronous call in whose `wait` the rank's main thread is; None: in none that is known."""
    return next((call for call in reversed(rank.calls) if call.state == "waiting"), None)


def entered(rank: RankEvidence, site: Optional[Frame]) -> str:
    """Return the collective that the line `site` called of a group itself, past torch's Python; '': none."""
    call = rank.calls[-1] if rank.calls else None
    if call is None or site is None or call.p2p or call.state != "entered" or not call.frames:
        return ""
    return call.op if (call.frames[0].file, call.frames[0].line) == (site.file, site.line) else ""


def described(call: Collective) -> str:
    """'recv from rank 0 (train.py:13)'."""
    return f"{named(call)}{phrases.at(stacks.user_frame(call.frames))}"


def named(call: Collective) -> str:
    """'all_reduce 17', 'recv from rank 0', 'send to rank 3'."""
    if not call.p2p:
        return f"{call.op} {call.seq}"
    way = "from" if "recv" in call.op else "to"
    peer = "any rank" if call.peer is None or call.peer < 0 else f"rank {call.peer}"
    return f"{call.op} {way} {peer}"
