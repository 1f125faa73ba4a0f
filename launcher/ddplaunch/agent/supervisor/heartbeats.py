"""Builds the heartbeat that the hub gets every second."""

from __future__ import annotations

import time

from ddplaunch.agent.contract import Beat, RankBeat
from ddplaunch.agent.supervisor.rank_tracker import RankTracker


def beat(node: int, tracker: RankTracker) -> Beat:
    """Return how each rank of the node fares right now."""
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
            completed=rank.counted[1] if rank.counted else 0,
            exit=rank.exit,
        )
        for rank in tracker.ranks
    ]
    return Beat(node, tracker.phase, time.time(), ranks)
