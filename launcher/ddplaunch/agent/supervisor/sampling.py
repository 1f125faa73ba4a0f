"""Samples once a second what each rank and its children have used."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import Frame, Process
from ddplaunch.agent.evidence import flight, mpi_stacks
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.progress import Sample
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, tcp

_KEPT = 6
"""Samples of a process: rates are over the last few seconds."""
_DEPTH = 6
"""Generations of children that are looked at. A rank that builds an extension has ninja, a shell, nvcc,
another shell and the compiler itself below it, and only the last of them is at work.
"""
_CHILDREN = 128
_SOCKETS_EVERY = 2.0
_MUTE = 1.0
"""Seconds for which a hook owes an answer, until it is asked why."""


class _Moment(NamedTuple):
    at: float
    usage: proc.Usage


class Sampler:
    """Remembers the last samples of every process, so that evidence has rates without waiting."""

    def __init__(self) -> None:
        self._moments: dict[int, deque[_Moment]] = {}
        self._sent: dict[int, deque[tuple[float, int]]] = {}  # by pid of the rank
        self._sockets_at = 0.0
        self.sockets_missing = ""

    def sample(self, rank: Rank, lines: dict[int, Line]) -> Sample:
        """One look at a rank, with what its hook has answered since the last."""
        now = time.monotonic()
        stat = proc.stat(rank.program)
        rank.children = children = family(rank.program)
        used = {
            pid: usage for pid in [rank.program, *children] if (usage := self.touch(pid, now)) is not None
        }
        answer = rank.line.answer if rank.line is not None else None
        frames = frames_of(answer)
        deeper = [frames_of(lines[pid].answer) for pid in children if pid in lines]
        now_counted, is_doubtful = count(rank, answer)
        rank.initialized = initialized(answer, rank.initialized)
        rank.mpi_mute = _is_mute_in_mpi(rank)
        rank.was_initialized = rank.was_initialized or bool(rank.initialized)
        printed, rank.printed = rank.printed, False
        sent = self._sent.get(rank.program)
        return Sample(
            at=now,
            used=used,
            runnable=stat is not None and stat.state == "R",
            printed=printed,
            counted=now_counted,
            is_doubtful=is_doubtful,
            initialized=rank.initialized,
            sent=sent[-1][1] if sent else None,
            frames=frames,
            deeper=tuple(each for each in deeper if each),
        )

    def look_at_sockets(self, ranks: Iterable[Rank]) -> None:
        """Count the bytes of the suspicious ranks' sockets. One question to the kernel serves all."""
        now = time.monotonic()
        suspects = [rank for rank in ranks if rank.progress.suspicious(now)]
        self._sent = {rank.program: self._sent.get(rank.program, deque(maxlen=_KEPT)) for rank in suspects}
        if not suspects or self.sockets_missing or now - self._sockets_at < _SOCKETS_EVERY:
            return
        self._sockets_at = now
        try:
            sent = tcp.bytes_by_inode()
        except OSError as error:
            self.sockets_missing = f"sockets: {error.strerror or error}"
            self._sent = {}
            return
        for rank in suspects:
            inodes = set().union(*(proc.socket_inodes(pid) for pid in [rank.program, *rank.children]))
            self._sent[rank.program].append((now, sum(sent.get(inode, 0) for inode in inodes)))

    def touch(self, pid: int, now: float) -> Optional[proc.Usage]:
        """Remember what a process has used by now."""
        usage = proc.usage(pid)
        if usage is not None:
            self._moments.setdefault(pid, deque(maxlen=_KEPT)).append(_Moment(now, usage))
        return usage

    def age(self, pid: int) -> float:
        """Seconds between its first and its last remembered sample."""
        moments = self._moments.get(pid)
        return moments[-1].at - moments[0].at if moments else 0.0

    def forget_all_but(self, pids: Iterable[int]) -> None:
        kept = set(pids)
        self._moments = {pid: moments for pid, moments in self._moments.items() if pid in kept}

    def process(self, pid: int) -> Optional[Process]:
        """Return its state now and its rates over the last seconds; without stacks and role."""
        stat = proc.stat(pid)
        if stat is None:
            return None
        facts: dict[str, Any] = {}
        moments = self._moments.get(pid)
        if moments and len(moments) > 1:
            (before_at, before), (after_at, after) = moments[0], moments[-1]
            seconds = max(after_at - before_at, 0.001)
            facts = {
                "cpu_share": round((after.cpu - before.cpu) / seconds, 3),
                "read_rate": round(after.read_since(before) / seconds, 1),
                "write_rate": round((after.written - before.written) / seconds, 1),
                "wakeups": round((after.wakeups - before.wakeups) / seconds, 2),
            }
        sent = self._sent.get(pid)
        if sent and len(sent) > 1:
            facts["net_rate"] = round((sent[-1][1] - sent[0][1]) / max(sent[-1][0] - sent[0][0], 0.001), 1)
        return Process(
            pid, stat.state, stat.command, proc.wchan(pid), stat.threads, memory=stat.memory, **facts
        )


def family(pid: int) -> list[int]:
    """Return its children and their descendants, the nearest first."""
    found: list[int] = []
    generation = [pid]
    for _ in range(_DEPTH):
        generation = [child for parent in generation for child in proc.children(parent)]
        found += generation
        if not generation or len(found) > _CHILDREN:
            break
    return found[:_CHILDREN]


def count(rank: Rank, answer: Optional[dict[str, Any]]) -> tuple[Optional[tuple[int, int]], bool]:
    """Return what `counted` does, and whether it may lag: Gloo's threads overtake one another."""
    found = counted(answer)
    if answer is None or found is None:
        return None, False
    called, done = found
    if rank.counted is not None and called >= rank.counted[0]:
        done = max(done, rank.counted[1])  # as the entries have told, or a thread before it was overtaken
    gloo = (answer.get("recorders") or {}).get("gloo") or {}
    if "entries" in gloo:
        rank.settled = called
    rank.counted = called, done
    return rank.counted, bool(gloo) and called > done and rank.settled != called


def counted(answer: Optional[dict[str, Any]]) -> Optional[tuple[int, int]]:
    """Collectives called and done, summed over groups and backends; None where the hook cannot tell."""
    if answer is None or not (answer.get("recorders") or answer.get("mpi")):
        return None
    returned = int((answer.get("mpi") or {}).get("returned", 0))
    pairs = [
        pair for dump in (answer.get("recorders") or {}).values() for pair in flight.counters(dump).values()
    ]
    return returned + sum(called for called, _ in pairs), returned + sum(done for _, done in pairs)


def _is_mute_in_mpi(rank: Rank) -> bool:
    """mpi4py keeps the GIL in MPI_Init, and where it duplicates a communicator for its own use."""
    line = rank.line
    return (
        line is not None and line.silent_for >= _MUTE and proc.maps_library(rank.program, mpi_stacks.LIBRARY)
    )


def initialized(answer: Optional[dict[str, Any]], before: Optional[bool]) -> Optional[bool]:
    """torch.distributed.is_initialized(), or what was known before."""
    return before if answer is None else bool(answer.get("initialized", before))


def frames_of(answer: Optional[dict[str, Any]]) -> Optional[list[Frame]]:
    """The main thread's, innermost first, of an answer to `look`."""
    if answer is None or "main_stack" not in answer:
        return None
    return [Frame(str(name), str(file), int(line)) for name, file, line in answer["main_stack"]["frames"]]
