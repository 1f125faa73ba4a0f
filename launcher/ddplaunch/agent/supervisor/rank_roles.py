"""Finds which processes of a node are ranks, and which only start them.

A rank is a process that has called init_process_group, or is about to, at any depth below torchrun, mp.spawn,
a shell script, or several of these. Its number is the one in its call. Before the call there are three signs,
the strongest first: RANK and LOCAL_RANK in its environment; the call of a sibling that multiprocessing has
started beside it; a start by torch's mp.spawn.

`Candidates` collects the signs, and `assign_roles` decides from them. `rank_tracker` calls both.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ddplaunch.agent.contract import Env
from ddplaunch.agent.supervisor import launch_options
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.system import proc

CALL = "call"
ENVIRONMENT = "environment"
SPAWN = "spawn"


@dataclass(frozen=True)
class Numbers:
    """Rank numbers from an environment or a call. None: the number is not in it."""

    rank: Optional[int] = None
    local_rank: Optional[int] = None
    world_size: Optional[int] = None


@dataclass(frozen=True)
class Candidate:
    """A process that may be a rank."""

    pid: int
    parents: tuple[int, ...] = ()  # nearest first
    environment: Optional[Numbers] = None  # it has RANK and LOCAL_RANK
    call: Optional[Numbers] = None  # it has called init_process_group
    spawned: Optional[int] = None  # its index among its parent's children, from 0
    by_torch: bool = False  # spawned by torch.multiprocessing


@dataclass(frozen=True)
class Member:
    """One rank. `pid` is the process whose end is the rank's end, `program` the one that computes."""

    pid: int
    program: int
    rank: int
    local_rank: int
    world_size: Optional[int]
    numbered_by: str


@dataclass(frozen=True)
class RankRoles:
    members: list[Member]  # by rank, then by pid
    launchers: frozenset[int]  # candidates that turned out to start ranks


def assign_roles(candidates: Iterable[Candidate]) -> RankRoles:
    """Return the roles: each candidate is a member, a process inside a member, or a launcher."""
    known = {each.pid: each for each in candidates}
    outermost = {pid: _outermost(each, known) for pid, each in known.items()}
    members: list[Member] = []
    launchers: set[int] = set()
    for pid in sorted({root for root in outermost.values() if root is not None}):
        inside = [each for each in known.values() if outermost[each.pid] == pid]
        one = _one_rank(known[pid], inside)
        if one is not None:
            members.append(one)
        else:
            launchers.add(pid)
    grouped = {each.program for each in members} | {each.pid for each in members}
    callers = [
        each
        for each in known.values()
        if each.call is not None and each.pid not in grouped and outermost[each.pid] not in grouped
    ]
    members += _numbered(callers)
    members += _siblings(known, callers, members)
    members += _spawned_by_torch(known, callers, outermost, launchers)
    members = sorted(members, key=lambda each: (each.rank, each.pid))
    # A program may itself be rank 0 and start the others.
    return RankRoles(members, frozenset(launchers - {each.pid for each in members}))


def _outermost(candidate: Candidate, known: Mapping[int, Candidate]) -> Optional[int]:
    """Return the topmost of the candidate and its ancestors that has a rank's number in its environment."""
    last = candidate.pid if candidate.environment is not None else None
    for parent in candidate.parents:
        above = known.get(parent)
        if above is not None and above.environment is not None:
            last = parent
    return last


def _one_rank(root: Candidate, inside: Sequence[Candidate]) -> Optional[Member]:
    """Return the rank that `root` is; None if the calls of processes `inside` show that it is a launcher."""
    environment = root.environment
    assert environment is not None
    if any(each.by_torch for each in inside):
        return None
    callers = [each for each in inside if each.call is not None]
    if len(callers) > 1:
        return None
    if not callers:
        # A shell script may be the outermost; then the last process that it has started is the program.
        program = [root, *(each for each in inside if each.environment is not None and each is not root)][-1]
        return _member(root, program, Numbers(), ENVIRONMENT)
    caller = callers[0]
    assert caller.call is not None
    sizes = {caller.call.world_size, environment.world_size} - {None}
    if caller is not root and len(sizes) > 1:
        return None
    return _member(root, caller, caller.call, CALL if caller.call.rank is not None else ENVIRONMENT)


def _member(root: Candidate, program: Candidate, call: Numbers, numbered_by: str) -> Optional[Member]:
    environment = root.environment or Numbers()
    rank = environment.rank if call.rank is None else call.rank
    size = environment.world_size if call.world_size is None else call.world_size
    if rank is None:
        return None
    local = rank if environment.local_rank is None else environment.local_rank
    return Member(root.pid, program.pid, rank, local, size, numbered_by)


def _numbered(callers: Sequence[Candidate]) -> list[Member]:
    """Return the ranks that are known only from their calls. Their local ranks count from 0."""
    numbered = [each for each in callers if each.call is not None and each.call.rank is not None]
    numbered.sort(key=lambda each: (each.call.rank if each.call else 0, each.pid))
    members = []
    for local, each in enumerate(numbered):
        assert each.call is not None
        assert each.call.rank is not None
        members.append(Member(each.pid, each.pid, each.call.rank, local, each.call.world_size, CALL))
    return members


def _siblings(
    known: Mapping[int, Candidate], callers: Sequence[Candidate], members: Sequence[Member]
) -> list[Member]:
    """Return ranks that have not called yet, by the calls of siblings: one parent, numbered in order."""
    taken = {each.rank for each in members}
    more: list[Member] = []
    for parent in sorted({each.parents[0] for each in callers if each.parents}):
        called = [each for each in callers if each.parents[:1] == (parent,) and each.spawned is not None]
        offsets = {
            each.call.rank - each.spawned
            for each in called
            if each.call is not None and each.call.rank is not None and each.spawned is not None
        }
        sizes = {each.call.world_size for each in called if each.call is not None}
        if len(offsets) != 1 or len(sizes) != 1:
            continue
        offset, size = offsets.pop(), sizes.pop()
        for each in sorted(known.values(), key=lambda each: each.pid):
            if each.call is not None or each.spawned is None or each.parents[:1] != (parent,):
                continue
            rank = each.spawned + offset
            if rank in taken or not 0 <= rank < (size or 0):
                continue
            taken.add(rank)
            more.append(Member(each.pid, each.pid, rank, each.spawned, size, SPAWN))
    return more


def _spawned_by_torch(
    known: Mapping[int, Candidate],
    callers: Sequence[Candidate],
    outermost: Mapping[int, Optional[int]],
    launchers: set[int],
) -> list[Member]:
    """Return mp.spawn's children before any of them has called, numbered in the order of their start."""
    called = {each.parents[0] for each in callers if each.parents}
    return [
        Member(each.pid, each.pid, each.spawned, each.spawned, None, SPAWN)
        for each in sorted(known.values(), key=lambda each: each.pid)
        if each.by_torch
        and each.call is None
        and each.spawned is not None
        and each.parents[:1]
        and each.parents[0] not in called
        and outermost[each.pid] in (None, *launchers)
    ]


# --- the signs

_ASKED_OFTEN, _ASKED_SELDOM = 30, 10
"""A process is asked how it was started once in each of its first 30 seconds, and then every tenth second:
multiprocessing knows that only after the imports of the main file, which may take a minute."""


class Candidates:
    """Processes of this node that may be ranks."""

    def __init__(self) -> None:
        self.of_mpi = False  # the rank numbers of an MPI launcher count as well
        self._known: dict[int, Candidate] = {}
        self._queries: dict[int, int] = {}

    def find(self) -> None:
        """Add workers without a hook, found by their environment, and drop helpers that have ended.

        A data loader has new workers in every epoch, and a later process may get the pid of an old one.
        """
        for pid, known in list(self._known.items()):
            if known.call is None and known.environment is None and proc.stat(pid) is None:
                del self._known[pid]
                self._queries.pop(pid, None)
        for pid in find_numbered(proc.children(os.getpid()), self._known, self.of_mpi):
            self._add(pid, environment=numbers_of(pid, self.of_mpi))

    def note_connected(self, line: Line) -> None:
        """Add a process whose hook has connected, and those of its ancestors that have a rank's number."""
        if line.role != "rank":
            return  # it is no candidate until it calls init_process_group
        own = numbers_of(line.pid, self.of_mpi)
        if own is None and line.rank is not None and line.local_rank is not None:
            own = Numbers(line.rank, line.local_rank, line.world_size)  # it has already ended
        self._add(line.pid, environment=own)
        for parent in self._known[line.pid].parents:
            numbers = numbers_of(parent, self.of_mpi)
            if numbers is not None:
                self._add(parent, environment=numbers)

    def note_call(self, line: Line, rank: Optional[int], world_size: Optional[int]) -> None:
        """Note that a process has called init_process_group with these numbers."""
        self._add(line.pid, call=Numbers(rank, None, world_size))

    def take_answers(self, lines: Iterable[Line]) -> bool:
        """Note what processes have answered to `who`. Returns whether there was anything new."""
        is_new = False
        for line in lines:
            index = (line.answer or {}).get("spawned")
            if index is not None and self.index_of(line.pid) is None:
                # Siblings are recognised by their parent, which under pytest is this process.
                parents = tuple(ancestors(line.pid)) or (os.getpid(),)
                self._add(line.pid, spawned=int(index), parents=parents)
                is_new = True
        return is_new

    def note_spawned(self, line: Line, index: int, parent: int) -> None:
        """Note that torch's mp.spawn has started a process as its parent's child number `index`."""
        # Once a process has ended, the system does not know its parents.
        self._add(line.pid, spawned=index, by_torch=True, parents=(parent, *ancestors(parent)))

    def index_of(self, pid: int) -> Optional[int]:
        """Return a process's index among its parent's children; None if it is not known."""
        known = self._known.get(pid)
        return None if known is None else known.spawned

    def was_spawned(self, pid: int, index: int, parent: int) -> bool:
        """Whether a process is known to be child number `index` of this parent."""
        known = self._known.get(pid)
        return known is not None and known.spawned == index and known.parents[:1] == (parent,)

    def choose_to_ask(self, lines: Iterable[Line]) -> list[Line]:
        """Return the processes to ask now how they were started."""
        result = []
        for line in lines:
            unknown = self.index_of(line.pid) is None
            if line.role in ("any", "child") and unknown and line.request is None:
                count = self._queries[line.pid] = self._queries.get(line.pid, 0) + 1
                if count <= _ASKED_OFTEN or count % _ASKED_SELDOM == 0:
                    result.append(line)
        return result

    def assign_roles(self) -> RankRoles:
        return assign_roles(self._known.values())

    def forget(self, pid: int) -> None:
        """Drop a process that another one has replaced, and also those of its ancestors that are gone."""
        dropped = self._known.pop(pid, None)
        for parent in dropped.parents if dropped is not None else ():
            if proc.stat(parent) is None:
                self._known.pop(parent, None)

    def forget_ended(self) -> None:
        """Drop the processes that are gone, because later ones take their places."""
        for pid in [pid for pid in self._known if proc.stat(pid) is None]:
            del self._known[pid]
            self._queries.pop(pid, None)

    def _add(self, pid: int, **facts: Any) -> None:
        known = self._known.pop(pid, None) or Candidate(pid, tuple(ancestors(pid)))
        self._known[pid] = dataclasses.replace(known, **facts)  # the newest last


def ancestors(pid: int) -> Iterable[int]:
    """Yield the ancestors of `pid` below this process, its parent first."""
    us = os.getpid()
    stat = proc.stat(pid)
    while stat is not None and stat.parent > 1 and stat.parent != us:
        yield stat.parent
        stat = proc.stat(stat.parent)


def find_numbered(roots: Iterable[int], known: Container[int], of_mpi: bool = False) -> list[int]:
    """Return the topmost processes with rank numbers, from `roots` down, but not below `known`."""
    pids = []
    queue = list(roots)
    while queue:
        pid = queue.pop()
        # A rank's child has its numbers too, and multiprocessing's resource tracker may outlive the rank.
        if pid in known or ",rank=" in proc.environment(pid).get(Env.HOOK, ""):
            continue
        if numbers_of(pid, of_mpi) is not None:
            pids.append(pid)
        else:
            queue += proc.children(pid)
    return pids


def numbers_of(pid: int, of_mpi: bool = False) -> Optional[Numbers]:
    """Return RANK, LOCAL_RANK and WORLD_SIZE from a process's environment, otherwise MPI's numbers."""
    return numbers_in(proc.environment(pid), of_mpi)


def numbers_in(environment: Mapping[str, str], of_mpi: bool = False) -> Optional[Numbers]:
    """Return a rank's numbers in an environment, as `numbers_of` does."""
    size = environment.get("WORLD_SIZE", "")
    rank, local = environment.get("RANK", ""), environment.get("LOCAL_RANK", "")
    if rank.isdecimal() and local.isdecimal():
        return Numbers(int(rank), int(local), int(size) if size.isdecimal() else None)
    numbers = launch_options.mpi_numbers(environment) if of_mpi else None
    return None if numbers is None else Numbers(*numbers)
