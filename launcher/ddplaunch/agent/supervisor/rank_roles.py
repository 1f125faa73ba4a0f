"""Decides which processes of a node are ranks, and which only start them. Pure.

A rank is a process that has called init_process_group, or is about to, at any depth below torchrun, mp.spawn,
a shell script, or several of them. Its number is the one of its call. Before the call there are three signs,
strongest first: RANK and LOCAL_RANK in its environment; the call of a sibling that multiprocessing has
started beside it; a start by torch's mp.spawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

CALL = "call"
ENVIRONMENT = "environment"
SPAWN = "spawn"


@dataclass(frozen=True)
class Numbers:
    """Rank numbers from an environment or a call. None: not in it."""

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
    launchers: frozenset[int]  # candidates that have turned out to start ranks


def view(candidates: Iterable[Candidate]) -> RankRoles:
    """Return the roles: each candidate is a member, a process inside one, or a launcher."""
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
    # A program may be rank 0 itself and start the others.
    return RankRoles(members, frozenset(launchers - {each.pid for each in members}))


def _outermost(candidate: Candidate, known: Mapping[int, Candidate]) -> Optional[int]:
    """Return the topmost of the candidate and its ancestors with a rank's number in the environment."""
    last = candidate.pid if candidate.environment is not None else None
    for parent in candidate.parents:
        above = known.get(parent)
        if above is not None and above.environment is not None:
            last = parent
    return last


def _one_rank(root: Candidate, inside: Sequence[Candidate]) -> Optional[Member]:
    """Return the rank that `root` is; None if the calls of the processes `inside` show a launcher."""
    environment = root.environment
    assert environment is not None
    if any(each.by_torch for each in inside):
        return None
    callers = [each for each in inside if each.call is not None]
    if len(callers) > 1:
        return None
    if not callers:
        # A shell script may be the outermost; the last process that it has started is the program.
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
    """Return the ranks that are known by their call alone; their local ranks count from 0."""
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
    """Return ranks that have not called yet, by calls of siblings: one parent, numbered in order."""
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
