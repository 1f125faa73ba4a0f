"""group-partial: a collective of a group lacks ranks that are blocked in another group, or none makes it.

Groups share ranks, and a rank is in one collective at a time. Where two groups' collectives are called in
different orders, or one of them by a part of its group, each waits for ranks that the other holds.
"""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import blocked, wait_cycle
from ddplaunch.agent.diagnosis.run.blocked import Block
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

_MAKES_GROUP = re.compile(r"new_(sub)?groups?|split_group")
_SHOWN = 4
"""Groups of a circle that a sentence has."""


def groups_wait(view: JobView) -> Optional[Verdict]:
    """Return the verdict on collectives of several groups each of which waits for ranks of the next."""
    blocks = blocked.find(view)
    circle = [blocks[rank] for rank in wait_cycle.find({rank: each.awaits for rank, each in blocks.items()})]
    if not circle or any(block.call for block in circle):
        return None
    camps: dict[tuple[str, int], list[Block]] = {}
    for block in [*circle, *(blocks[rank] for rank in sorted(blocks))]:
        key = (block.group, block.number)
        if key in {(each.group, each.number) for each in circle} and block not in camps.get(key, []):
            camps.setdefault(key, []).append(block)
    ordered = sorted(camps.values(), key=lambda camp: min(block.at for block in camp))
    culprits = _culprits(view, ordered)
    parts = [
        f"{camp[0].what} of {blocked.who(view, camp[0].group)} has {subjects.ranks(_ranks(camp))} and lacks "
        f"{subjects.ranks(camp[0].awaits)}"
        for camp in ordered[:_SHOWN]
    ]
    parts += ["and so on"] if len(ordered) > _SHOWN else []
    round_trip = " → ".join(str(block.rank) for block in [*circle, circle[0]])
    tie = len(culprits) == sum(map(len, ordered))
    return view.verdict(
        code="group-partial",
        sentence=f"groups wait for one another: {'; '.join(parts)}",
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=0.7 if tie else 0.9,
        facts=[
            f"ranks wait in a circle: {round_trip}",
            *(
                f"rank {block.rank} is in {block.what} of {blocked.who(view, block.group)}"
                for block in circle[:8]
            ),
        ],
        hint="All ranks of a group must call its collectives, and ranks that share two groups must call them "
        f"in the same order: compare {phrases.clipped(' and '.join(camp[0].what for camp in ordered[:2]))}, "
        "and the branches around them.",
    )


def _culprits(view: JobView, camps: list[list[Block]]) -> list[int]:
    """Return the smaller camp of two with equal members; else all that one camp holds and another lacks."""
    if len(camps) == 2 and len(camps[0]) != len(camps[1]):
        first, second = (view.members.get(camp[0].group) for camp in camps)
        if first == second and not view.unseen:
            return _ranks(min(camps, key=len))
    lacking = {rank for camp in camps for rank in camp[0].awaits}
    return sorted(lacking & {rank for camp in camps for rank in _ranks(camp)})


def _ranks(camp: list[Block]) -> list[int]:
    return sorted(block.rank for block in camp)


def new_group_partial(view: JobView) -> Optional[Verdict]:
    """Return the verdict where some ranks are in `new_group`, which all ranks of the job must call."""
    inside = [rank for rank in view.waiting if _MAKES_GROUP.fullmatch(view.locations[rank].what)]
    lacking = [rank for rank in view.waiting if rank not in inside]
    if not inside or not lacking or view.waiting != view.alive or view.unseen:
        return None
    where = "; ".join(view.whereabouts(lacking)[:3])
    return view.verdict(
        code="group-partial",
        sentence=f"{view.locations[inside[0]]} has {subjects.ranks(inside)} "
        f"and lacks {subjects.ranks(lacking)}: {where}",
        ranks=lacking,
        victims=inside,
        confidence=0.5,
        facts=view.counts(),
        hint="Every rank of the job must call new_group, also those outside the group: take it out of "
        "the branch on the rank.",
    )
