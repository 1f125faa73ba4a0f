"""Stops torchrun for a moment when a rank ends, so that evidence of the others is collected first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ddplaunch.agent.supervisor import ranks
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes

LAST_BREATH = 1.0
"""Seconds that a launcher is held while a rank's interpreter shuts down and waits: it may wait for the
launcher, for torchrun has the store."""
TEARDOWN = 10.0
"""Seconds that a launcher is held while such a rank runs. torchrun's rendezvous drops a node after 15."""


@dataclass
class _Held:
    """A stopped launcher. Moments of time.monotonic()."""

    until: float
    busy: float  # when one of its dying ranks was last seen to run


class Launchers:
    """Holds launchers after a rank's end: torchrun by SIGSTOP, MPI's through the rank's keeper."""

    def __init__(self) -> None:
        self.stopping = False  # we end the job ourselves, so no launcher is held
        self._stopped: dict[int, _Held] = {}  # by pid

    def hold(self, rank: Rank) -> None:
        """Stop the parent of `rank` before it reaps the rank or ends others over it."""
        if rank.keeper is not None:
            return  # it waits by itself
        if rank.parent in (0, os.getpid()):  # 0: the rank was reaped before; kill(0) would signal ourselves
            return
        if rank.parent not in self._stopped and not self.stopping:
            now = time.monotonic()
            self._stopped[rank.parent] = _Held(now + TEARDOWN, now)
            processes.send(rank.parent, signal.SIGSTOP)

    def let_go(self, node_ranks: Sequence[Rank]) -> None:
        """Let the launchers go on that have been held for long enough."""
        for rank in node_ranks:
            if rank.keeper is not None and rank.exit is not None and not rank.released:
                # The launcher will end the ranks of all nodes: evidence of them comes first.
                waited = time.time() - rank.exit.at
                if not ranks.bad(rank.exit) or waited > LAST_BREATH or self.stopping:
                    rank.released = True
                    rank.keeper.send(b"go")
        now = time.monotonic()
        dying = [rank for rank in node_ranks if rank.alive and rank.line is not None and rank.line.ending]
        for pid, held in list(self._stopped.items()):
            its = [rank.program for rank in dying if rank.parent == pid]
            if any((stat := proc.stat(each)) is not None and stat.state in "RD" for each in its):
                held.busy = now
            if not its or now > min(held.until, held.busy + LAST_BREATH) or self.stopping:
                del self._stopped[pid]
                processes.send(pid, signal.SIGCONT)
