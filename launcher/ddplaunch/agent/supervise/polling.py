"""Asks the ranks' hooks once a second, and takes a sample of every rank a moment later."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable
from typing import Optional

from ddplaunch.agent.supervise.crew import Crew
from ddplaunch.agent.supervise.gather import Gatherer
from ddplaunch.agent.supervise.hooks import Hooks, Line
from ddplaunch.agent.supervise.ranks import Rank
from ddplaunch.agent.supervise.sampling import Sampler

POLL = 0.1
"""Seconds between two looks at what nothing announces: log files, and on old kernels deaths."""


def wait_for(descriptors: Iterable[Optional[int]]) -> None:
    """Until one is readable, or for POLL seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    poll.poll(POLL * 1000)


class Poller:
    def __init__(self, crew: Crew, hooks: Hooks, sampler: Sampler, gatherer: Gatherer) -> None:
        self._crew = crew
        self._hooks = hooks
        self._sampler = sampler
        self._gatherer = gatherer

    def ask(self) -> None:
        """Ask for counters; for stacks as well where a rank makes no progress."""
        now = time.monotonic()
        for line in self._crew.strangers():
            line.ask(b"who")
        for rank in self._crew.alive:
            suspicious = rank.progress.suspicious(now)
            if rank.line is not None:
                rank.line.ask(rank.question(suspicious))
            if suspicious:
                for line in self._children_of(rank):
                    line.ask(b"look")
        self._sampler.look_at_sockets(self._crew.alive)

    def sample(self) -> None:
        """Use what was answered, and what /proc says now."""
        self._crew.recognise()
        for rank in self._crew.alive:
            rank.progress.take(self._sampler.sample(rank, self._hooks.lines))
        pids = [pid for rank in self._crew.alive for pid in (rank.pid, rank.program, *rank.children)]
        self._sampler.forget_all_but(pids)
        self._gatherer.remember(pids)

    def _children_of(self, rank: Rank) -> Iterable[Line]:
        return [self._hooks.lines[pid] for pid in rank.children if pid in self._hooks.lines]
