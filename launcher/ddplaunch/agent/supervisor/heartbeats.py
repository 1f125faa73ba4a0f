"""Builds the heartbeat that the hub gets every second."""

from __future__ import annotations

import time
from collections import Counter

from ddplaunch.agent.contract import Beat, RankBeat, RankEvidence, RankPace, Stand
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank

_PACE_EVERY = 10.0
"""Seconds between two beats with the pace, about: a hub may read a thousand beats a second."""


def beat(node: int, tracker: RankTracker) -> Beat:
    """Return the present state of each rank of the node."""
    now = time.monotonic()
    ranks = [
        RankBeat(
            rank=rank.number,
            local_rank=rank.local,
            pid=rank.pid,
            alive=rank.alive,
            phase=rank.phase,
            stuck_for=round(rank.progress.stuck_for(now), 1),
            still_for=round(rank.progress.still_for(now), 1),
            waits=rank.progress.waits(now) or rank.mpi_mute or rank.mpi == "ending",
            makes_communicator=_has_only_nccl(rank) and rank.progress.makes_communicator(now),
            completed=rank.counted[1] if rank.counted else 0,
            exit=rank.exit,
            timeout=rank.timeout,
        )
        for rank in tracker.ranks
    ]
    now_and_then = now % _PACE_EVERY < 1.5
    paces = [_pace(rank, now) for rank in tracker.alive] if now_and_then else []
    return Beat(node, tracker.phase, time.time(), ranks, paces, tracker.attempt, tracker.least_nodes)


def _has_only_nccl(rank: Rank) -> bool:
    answer = rank.line.answer if rank.line is not None else None
    return list((answer or {}).get("recorders") or {}) == ["nccl"]


def _pace(rank: Rank, now: float) -> RankPace:
    kinds, step = Counter(kind for kind, _ in rank.stands), rank.steps.seconds(now)
    stands = [Stand(kind, seconds) for kind, seconds in kinds.items()]
    evidence = RankEvidence(
        rank.number, rank.local, rank.pid, True, stands=stands, step_times=[] if step is None else [step]
    )
    return pace.brief(evidence)
