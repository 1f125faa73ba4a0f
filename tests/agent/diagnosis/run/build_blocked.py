"""Ranks that are blocked, made by hand: with the calls in the hook's ring, and groups with their members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import NOW, in_collective, rank, stack

from ddplaunch.agent.contract import Collective, Frame, Group, RankEvidence


def call(op: str, seq: int, line: int, state: str = "returned", **more: Any) -> Collective:
    """A call in the ring, from a line of train.py. `peer` makes it point-to-point."""
    p2p = "peer" in more
    values = {"group": "0", "sizes": [[8]], "tag": 0 if p2p else None, "at": NOW - 60 + seq, **more}
    frames = [Frame("train", "/job/train.py", line)]
    return Collective(seq=seq, op=op, state=state, p2p=p2p, frames=frames, **values)


def messaging(number: int, *calls: Collective, world: int = 3) -> RankEvidence:
    """A rank that stands in its last call, or in the wait for one that it has issued."""
    last = calls[-1]
    waits = [each for each in calls if each.state == "waiting"]
    line = (waits or [last])[-1].frames[0].line
    its = in_collective(last.op, line)
    if waits:
        its = stack(Frame("train", "/job/train.py", line))
    members = list(range(world))
    return rank(number, its, calls=list(calls), groups=[Group("0", members, 5, 5, "default_pg")])


def meeting(number: int, op: str, line: int, blocked: str, **groups: tuple[list[int], int]) -> RankEvidence:
    """A rank in a collective of group `blocked`; of each group its members and what it has called."""
    its = [
        Group(name[1:], members, enqueued, enqueued - (name[1:] == blocked))
        for name, (members, enqueued) in groups.items()
    ]
    enqueued = next(group.enqueued for group in its if group.name == blocked)
    entry = Collective(blocked, enqueued, op, [[8]], at=NOW - 20)
    return replace(rank(number, in_collective(op, line)), groups=its, collectives=[entry])
