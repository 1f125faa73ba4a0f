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
"""So many times a process is asked every second how it was started, then every tenth second: multiprocessing
knows it only after the imports of the main file, which may take a minute."""


class Candidates:
    """Processes of this node that may be ranks."""

    def __init__(self) -> None:
        self.of_mpi = False  # rank numbers of an MPI launcher count as well
        self._known: dict[int, Candidate] = {}
        self._queries: dict[int, int] = {}

    def find(self) -> None:
        """Add workers without a hook, by their environment; drop helpers that have ended.

        A data loader has new workers every epoch, and a later process may get the pid of one.
        """
        for pid, known in list(self._known.items()):
            if known.call is None and known.environment is None and proc.stat(pid) is None:
                del self._known[pid]
                self._queries.pop(pid, None)
        for pid in ranks.find(proc.children(os.getpid()), self._known, self.of_mpi):
            self._add(pid, environment=ranks.numbers_of(pid, self.of_mpi))

    def joined(self, line: Line) -> None:
        """Add a process whose hook has connected, and its ancestors that have a rank's number."""
        if line.role != "rank":
            return  # until its call it is no candidate
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
            index = (line.answer or {}).get("spawned")
            if index is not None and self.index_of(line.pid) is None:
                # Siblings are known by their parent, which under pytest is this process.
                parents = tuple(ancestors(line.pid)) or (os.getpid(),)
                self._add(line.pid, spawned=int(index), parents=parents)
                is_new = True
        return is_new

    def spawned(self, line: Line, index: int, parent: int) -> None:
        """Note that torch's mp.spawn has started a process, as its parent's child number `index`."""
        # Of a process that has ended, the system knows no parents.
        self._add(line.pid, spawned=index, by_torch=True, parents=(parent, *ancestors(parent)))

    def index_of(self, pid: int) -> Optional[int]:
        """Return a process's index among its parent's children; None where it is not known."""
        known = self._known.get(pid)
        return None if known is None else known.spawned

    def was_spawned(self, pid: int, index: int, parent: int) -> bool:
        """Whether a process is known as child number `index` of this parent."""
        known = self._known.get(pid)
        return known is not None and known.spawned == index and known.parents[:1] == (parent,)

    def to_query(self, lines: Iterable[Line]) -> list[Line]:
        """Return the processes to ask now how they were started."""
        result = []
        for line in lines:
            unknown = self.index_of(line.pid) is None
            if line.role in ("any", "child") and unknown and line.request is None:
                count = self._queries[line.pid] = self._queries.get(line.pid, 0) + 1
                if count <= _OFTEN or count % _SELDOM == 0:
                    result.append(line)
        return result

    def view(self) -> RankRoles:
        return view(self._known.values())

    def forget(self, pid: int) -> None:
        """Drop a process that another has replaced, and its ancestors that are gone, too."""
        dropped = self._known.pop(pid, None)
        for parent in dropped.parents if dropped is not None else ():
            if proc.stat(parent) is None:
                self._known.pop(parent, None)

    def forget_ended(self) -> None:
        """Drop the processes that are gone: later ones take their places."""
        for pid in [pid for pid in self._known if proc.stat(pid) is None]:
            del self._known[pid]
            self._queries.pop(pid, None)

    def _add(self, pid: int, **facts: Any) -> None:
        known = self._known.pop(pid, None) or Candidate(pid, tuple(ancestors(pid)))
        self._known[pid] = dataclasses.replace(known, **facts)  # the newest last


def ancestors(pid: int) -> Iterable[int]:
    """Yield the ancestors of `pid`, the parent first, below this process."""
    us = os.getpid()
    stat = proc.stat(pid)
    while stat is not None and stat.parent > 1 and stat.parent != us:
        yield stat.parent
        stat = proc.stat(stat.parent)
