"""Asks the ranks' hooks once a second, then samples every rank and builds the heartbeat for the hub."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Iterable
from typing import Optional

from ddplaunch.agent.contract import Beat, RankBeat, RankEvidence, RankPace, Stand
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.supervisor.collector import Collector
from ddplaunch.agent.supervisor.hooks import Hooks, Line
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler

BEAT = 1.0
"""Seconds from one question to the next."""
POLL = 0.1
"""Seconds between two looks at log files and, on old kernels, for deaths: no descriptor tells us of these."""
_CALM = 0.5
"""The same in a job that prints nothing, because each look takes a moment from a core that a rank may
need."""
_MOMENT = 0.1
"""Seconds in which answers come, also those of the ranks' children."""
_MEASURED = 8
"""Nodes whose ranks say how long a step takes: reading a full recorder holds a rank's GIL for some 20 ms, and
a thousand other nodes might wait for that."""


def wait_for(descriptors: Iterable[Optional[int]], seconds: float = POLL) -> None:
    """Wait until one of the descriptors is readable, or for this long."""
    poll = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    poll.poll(seconds * 1000)


class Poller:
    def __init__(self, tracker: RankTracker, hooks: Hooks, sampler: Sampler, collector: Collector) -> None:
        self._tracker = tracker
        self._hooks = hooks
        self._sampler = sampler
        self._collector = collector
        self._begun_at = -BEAT
        self._has_sampled = True  # since it last asked

    def wait(self, descriptors: Iterable[Optional[int]], is_calm: bool) -> None:
        """Wait until a descriptor is readable or something may be due. `is_calm`: nothing is printed."""
        left = max(0.0, self._begun_at + BEAT - time.monotonic())
        wait_for(descriptors, min(_CALM, left) if is_calm and self._has_sampled else POLL)

    def is_question_due(self) -> bool:
        return self._has_sampled and time.monotonic() >= self._begun_at + BEAT

    def ask(self) -> None:
        """Ask the hooks for counters, and also for stacks if a rank makes no progress."""
        self._begun_at = now = time.monotonic()
        self._has_sampled = False
        for line in self._tracker.choose_to_ask():
            line.ask(b"who")
        for rank in self._tracker.alive:
            suspicious = rank.progress.is_suspicious(now)
            if rank.line is not None:
                rank.line.ask(rank.question(suspicious, self._tracker.node < _MEASURED))
            if suspicious:
                for line in self._children_of(rank):
                    line.ask(b"look")
        self._sampler.look_at_sockets(self._tracker.alive)
        self._sampler.look_at_queues(self._tracker.alive)

    def is_sample_due(self) -> bool:
        """Return whether the ranks have had a moment and have answered, or the next beat is due.

        A flight recorder is a megabyte of text: reading those of eight ranks takes longer than the moment. A
        rank that has not answered an older request cannot answer, so it is not waited for.
        """
        lines = [rank.line for rank in self._tracker.alive if rank.line is not None]
        owe = any(line.is_open and line.request and line.requested_at >= self._begun_at for line in lines)
        patience = BEAT if owe else _MOMENT
        return not self._has_sampled and time.monotonic() >= self._begun_at + patience

    def sample(self) -> None:
        """Take the answers, and take samples from /proc."""
        self._has_sampled = True
        self._tracker.recognise()
        for rank in self._tracker.alive:
            rank.progress.take(self._sampler.sample(rank, self._hooks.lines))
        pids = [pid for rank in self._tracker.alive for pid in (rank.pid, rank.program, *rank.children)]
        self._sampler.forget_all_but(pids)
        self._collector.remember(pids)

    def _children_of(self, rank: Rank) -> Iterable[Line]:
        return [self._hooks.lines[pid] for pid in rank.children if pid in self._hooks.lines]


# --- the heartbeat

_PACE_EVERY = 10.0
"""Seconds, roughly, between two beats that carry the pace: a hub may read a thousand beats a second."""


def build_beat(node: int, tracker: RankTracker) -> Beat:
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
            waits=rank.progress.is_waiting(now) or rank.mpi_mute or rank.mpi == "ending",
            makes_communicator=_has_only_nccl(rank) and rank.progress.is_making_communicator(now),
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
