"""Stops torchrun for a moment when a rank ends, so that the others can be looked at first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ddplaunch.agent.supervisor import ranks
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes

LAST_BREATH = 1.0
"""Seconds that a launcher stays in ignorance while an interpreter that ends by itself shuts down, and waits
for something. It may be for the launcher: torchrun keeps the store."""
TEARDOWN = 10.0
"""Seconds while it shares the processor, and does not wait. A rendezvous misses who is silent for 15."""


@dataclass
class _Held:
    """Moments of time.monotonic()."""

    until: float
    busy: float  # when one of its dying ranks was last seen to run


class Launchers:
    """torchrun, which is stopped by a signal, and MPI's, which learns of an end from the rank's keeper."""

    def __init__(self) -> None:
        self.stopping = False  # we end the job ourselves: nobody is held any more
        self._stopped: dict[int, _Held] = {}  # by pid

    def hold(self, rank: Rank) -> None:
        """Stop the process that waits for `rank`, before it acts on a death or buries what tells of it."""
        if rank.keeper is not None:
            return  # it waits by itself
        if rank.parent in (0, os.getpid()):  # 0: it was buried before we knew of it; to kill(2) it means us
            return
        if rank.parent not in self._stopped and not self.stopping:
            now = time.monotonic()
            self._stopped[rank.parent] = _Held(now + TEARDOWN, now)
            processes.send(rank.parent, signal.SIGSTOP)

    def let_go(self, everybody: Iterable[Rank]) -> None:
        """Let the launchers go on that have been held for long enough."""
        found = list(everybody)
        for rank in found:
            if rank.keeper is not None and rank.exit is not None and not rank.released:
                # The job's other ranks, on all nodes, are ended next: first they are looked at.
                waited = time.time() - rank.exit.at
                if not ranks.bad(rank.exit) or waited > LAST_BREATH or self.stopping:
                    rank.released = True
                    rank.keeper.send(b"go")
        now = time.monotonic()
        dying = [rank for rank in found if rank.alive and rank.line is not None and rank.line.ending]
        for pid, held in list(self._stopped.items()):
            its = [rank.program for rank in dying if rank.parent == pid]
            if any((stat := proc.stat(each)) is not None and stat.state in "RD" for each in its):
                held.busy = now
            if not its or now > min(held.until, held.busy + LAST_BREATH) or self.stopping:
                del self._stopped[pid]
                processes.send(pid, signal.SIGCONT)
