"""Collects signs that a process is a rank: its environment, its hook, how it was started."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any, Optional

from ddplaunch.agent.supervisor import ranks
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_roles import Candidate, Numbers, RankRoles, view
from ddplaunch.agent.system import proc

_OFTEN, _SELDOM = 30, 10
"""So many times a process is asked at every turn how it was started, then at every tenth: multiprocessing
knows it only when the imports of the main file are over, which may take a minute."""


class Candidates:
    def __init__(self) -> None:
        self.of_mpi = False  # an MPI launcher's numbers count as well
        self._known: dict[int, Candidate] = {}
        self._asked: dict[int, int] = {}

    def find(self) -> None:
        """Add workers that no hook announces, by their environment; drop helpers that have ended.

        A data loader has new workers every epoch, and a later process may have the number of one.
        """
        for pid, known in list(self._known.items()):
            if known.call is None and known.environment is None and proc.stat(pid) is None:
                del self._known[pid]
                self._asked.pop(pid, None)
        for pid in ranks.find(proc.children(os.getpid()), self._known, self.of_mpi):
            self._add(pid, environment=ranks.numbers_of(pid, self.of_mpi))

    def joined(self, line: Line) -> None:
        """Add a process that has said hello, and those above it that have a rank's number."""
        if line.role != "rank":
            return  # before its call nothing speaks for it
        own = ranks.numbers_of(line.pid, self.of_mpi)
        if own is None and line.rank is not None and line.local_rank is not None:
            own = Numbers(line.rank, line.local_rank, line.world_size)  # it has ended already
        self._add(line.pid, environment=own)
        for parent in self._known[line.pid].parents:
            numbers = ranks.numbers_of(parent, self.of_mpi)
            if numbers is not None:
                self._add(parent, environment=numbers)

    def called(self, line: Line, rank: Optional[int], world_size: Optional[int]) -> None:
        """Note that a process has called init_process_group, with these numbers."""
        self._add(line.pid, call=Numbers(rank, None, world_size))

    def answered(self, lines: Iterable[Line]) -> bool:
        """Note what processes have answered to `who`. Returns whether that is new."""
        is_new = False
        for line in lines:
            found = (line.answer or {}).get("spawned")
            known = self._known.get(line.pid)
            if isinstance(found, list) and (known is None or known.spawned is None):
                self._add(line.pid, spawned=int(found[0]), by_torch=found[1] == "torch")
                is_new = True
        return is_new

    def unasked(self, lines: Iterable[Line]) -> list[Line]:
        """Processes of which it is not known yet how they were started."""
        found = []
        for line in lines:
            known = self._known.get(line.pid)
            unknown = known is None or known.spawned is None
            if line.role in ("any", "child") and unknown and line.asked is None:
                asked = self._asked[line.pid] = self._asked.get(line.pid, 0) + 1
                if asked <= _OFTEN or asked % _SELDOM == 0:
                    found.append(line)
        return found

    def view(self) -> RankRoles:
        return view(self._known.values())

    def forget(self, pid: int) -> None:
        """Drop a process that another has replaced, and its ancestors that are gone, too."""
        dropped = self._known.pop(pid, None)
        for parent in dropped.parents if dropped is not None else ():
            if proc.stat(parent) is None:
                self._known.pop(parent, None)

    def _add(self, pid: int, **facts: Any) -> None:
        known = self._known.pop(pid, None) or Candidate(pid, tuple(ancestors(pid)))
        self._known[pid] = dataclasses.replace(known, **facts)  # the newest last


def ancestors(pid: int) -> Iterable[int]:
    """Yield its ancestors, the parent first, up to the supervisor, which is left out."""
    us = os.getpid()
    stat = proc.stat(pid)
    while stat is not None and stat.parent > 1 and stat.parent != us:
        yield stat.parent
        stat = proc.stat(stat.parent)
