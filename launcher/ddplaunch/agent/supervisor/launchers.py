"""Holds a launcher for a moment when a rank ends badly, so that evidence of the others is collected first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence

from ddplaunch.agent.supervisor import ranks
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes

HOLD = 1.0
"""Seconds for which a launcher is held at most, over one start of its ranks: until the evidence is there, and
ranks have ended whose interpreters were shutting down already, so that their own exit codes are known."""
_PROGRAMS = ("python", "pypy")
"""torchrun and the parent of mp.spawn end the other ranks over one. A shell, or make, does not."""


class Launchers:
    """Holds launchers after a rank's bad end: torchrun by SIGSTOP, MPI's through the rank's keeper."""

    def __init__(self) -> None:
        self.stopping = False  # we end the job ourselves, so no launcher is held
        self._stopped: set[int] = set()
        self._until: dict[int, float] = {}  # by pid: the moment of time.monotonic() until which to hold it

    def hold(self, rank: Rank) -> None:
        """Stop the parent of `rank` before it reaps the rank or ends others over it."""
        if rank.keeper is not None:
            return  # it waits by itself
        if rank.parent in (0, os.getpid()):  # 0: the rank was reaped before; kill(0) would signal ourselves
            return
        if rank.parent in self._stopped or self.stopping or not _ends_others(rank.parent):
            return
        now = time.monotonic()
        if now < self._until.setdefault(rank.parent, now + HOLD):
            self._stopped.add(rank.parent)
            processes.send(rank.parent, signal.SIGSTOP)

    def let_go(self, node_ranks: Sequence[Rank]) -> None:
        """Let the launchers go on, once the evidence has been collected, whose ranks are not about to end."""
        for rank in node_ranks:
            if rank.keeper is not None and rank.exit is not None and not rank.released:
                # The launcher will end the ranks of all nodes: evidence of them comes first.
                waited = time.time() - rank.exit.at
                if not ranks.bad(rank.exit) or waited > HOLD or self.stopping:
                    rank.released = True
                    rank.keeper.send(b"go")
        now = time.monotonic()
        dying = {rank.parent for rank in node_ranks if is_dying(rank)}
        self._release(
            pid for pid in self._stopped if self.stopping or pid not in dying or now >= self._until[pid]
        )

    def let_go_late(self) -> None:
        """Let the launchers go on that have been held for HOLD seconds, while evidence is collected."""
        now = time.monotonic()
        self._release(pid for pid in self._stopped if now >= self._until[pid])

    def begin_attempt(self) -> None:
        """Let all go on: they have started new ranks, over which they may be held again."""
        self._release(self._stopped)
        self._until.clear()

    def _release(self, pids: Iterable[int]) -> None:
        for pid in list(pids):
            self._stopped.discard(pid)
            processes.send(pid, signal.SIGCONT)


def is_dying(rank: Rank) -> bool:
    """Whether the rank's program is over, and its interpreter shuts down."""
    return rank.alive and rank.line is not None and bool(rank.line.ending)


def _ends_others(pid: int) -> bool:
    """Whether the process may end the other ranks over one, and runs: a user may have stopped it."""
    stat = proc.stat(pid)
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    return stat is not None and stat.state != "T" and program.startswith(_PROGRAMS)
