"""Ranks that ddplaunch did not start, made by hand, and what is said of them."""

from __future__ import annotations

from typing import Any

from tests.agent.diagnosis.build import in_collective, job, rank

from ddplaunch.agent.contract import (
    Collective,
    JobEvidence,
    RankEvidence,
)
from ddplaunch.agent.diagnosis.run.decide import judge

UNCOUNTED: dict[str, Any] = {"groups": [], "stack_source": "py-spy"}


def calls(number: int, op: str, line: int = 92, known: bool = True, **more: Any) -> RankEvidence:
    """A rank in a call of the default group; of another group where that is not `known`."""
    p2p = "peer" in more
    peer = more.pop("peer", None)
    call = Collective("0", 0, op, p2p=p2p, peer=peer, state="entered", tag=0 if p2p else None)
    return rank(
        number, in_collective(op, line), **{**UNCOUNTED, "stands_in": call if known else None, **more}
    )


def asked(*ranks: RankEvidence, **more: Any) -> JobEvidence:
    """As `diagnose pid:…` asks."""
    return job(*ranks, why="asked", per_node=len(ranks), **more)


def accused(*ranks: RankEvidence, **more: Any) -> list[int]:
    """All ranks that any verdict names."""
    return [number for verdict in judge(asked(*ranks, **more)) for number in verdict.ranks]
