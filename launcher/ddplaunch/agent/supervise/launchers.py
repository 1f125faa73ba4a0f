"""Keeps the launchers of ranks from acting on an end before it was looked at."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from ddplaunch.agent.supervise import guardian, ranks
from ddplaunch.agent.supervise.ranks import Rank

LAST_BREATH = 1.0
"""Seconds that a launcher stays in ignorance at most, while an interpreter that ends by itself shuts down."""


class Launchers:
    """torchrun, which is stopped by a signal, and MPI's, which learns of an end from the rank's keeper."""

    def __init__(self) -> None:
        self.stopping = False  # we end the job ourselves: nobody is held any more
        self._stopped: dict[int, float] = {}  # pid -> until when at most (time.monotonic())

    def hold(self, rank: Rank) -> None:
        """Stop the process that waits for `rank`, before it acts on a death or buries what tells of it."""
        if rank.keeper is not None:
            return  # it waits by itself
        if rank.parent != os.getpid() and rank.parent not in self._stopped and not self.stopping:
            self._stopped[rank.parent] = time.monotonic() + LAST_BREATH
            guardian.send(rank.parent, signal.SIGSTOP)

    def let_go(self, everybody: Iterable[Rank]) -> None:
        """Those who have been held for long enough."""
        found = list(everybody)
        for rank in found:
            if rank.keeper is not None and rank.exit is not None and not rank.released:
                # The job's other ranks, on all nodes, are ended next: first they are looked at.
                waited = time.time() - rank.exit.at
                if not ranks.bad(rank.exit) or waited > LAST_BREATH or self.stopping:
                    rank.released = True
                    rank.keeper.send(b"go")
        dying = {rank.parent for rank in found if rank.alive and rank.line is not None and rank.line.ending}
        for pid, until in list(self._stopped.items()):
            if pid not in dying or time.monotonic() > until or self.stopping:
                del self._stopped[pid]
                guardian.send(pid, signal.SIGCONT)
