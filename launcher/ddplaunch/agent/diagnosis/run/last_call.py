"""Describes the last collective that a rank called; the hook's ring has it for a dead rank, too."""

from __future__ import annotations

from ddplaunch.agent.contract import Collective, RankEvidence
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system import phrases


def last(rank: RankEvidence) -> list[str]:
    """'rank 2 was in recv from rank 0 (train.py:13)', as a fact; none where no call is known."""
    if not rank.calls:
        return []
    call = rank.calls[-1]
    place = f"{named(call)}{phrases.at(stacks.user_frame(call.frames))}"
    if call.state == "entered":
        return [f"rank {rank.rank} was in {place}"]
    return [f"rank {rank.rank} had come back from {place}"] if call.state == "returned" else []


def named(call: Collective) -> str:
    """'all_reduce 17', 'recv from rank 0', 'send to rank 3'."""
    if not call.p2p:
        return f"{call.op} {call.seq}"
    way = "from" if "recv" in call.op else "to"
    peer = "any rank" if call.peer is None or call.peer < 0 else f"rank {call.peer}"
    return f"{call.op} {way} {peer}"
