"""Samples the resources of each rank and its children once a second, for `heartbeats`; must stay cheap."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import Frame, Process, WatchdogPlan
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import cgroup, flight, ring, stacks, ties
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_progress import SUSPICION, Sample
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import ports, proc

_KEPT = 6
"""Samples to keep of a process: rates are over the last few seconds."""
_DEPTH = 6
"""Generations of children that are sampled. Below a rank that builds an extension there are ninja, a shell,
nvcc, another shell and the compiler, and only the last of them works."""
_CHILDREN = 128
_CHILDREN_QUEUED = 8
_SOCKETS_EVERY = 2.0
_PIECE = 512
"""Bytes of a segment above which a socket counts as moving data. A request to a store has some dozens."""
_QUEUES_EVERY = 2.0
_STARVES = 0.3
"""Share of the time without a CPU above which it matters who has the CPUs."""
_BUSY, _BUSIEST = 0.1, 3
"""Cores above which a process outside the job is named, and how many such processes are."""
_MUTE = 1.0
"""Seconds without an answer from a hook after which MPI may hold the GIL."""


class _Moment(NamedTuple):
    at: float
    usage: proc.Usage


class _Sent(NamedTuple):
    """Bytes through a rank's sockets so far."""

    at: float
    by_all: int  # also by its children
    by_itself: int
    in_bulk: int  # also by its children, since the supervisor began to look; without small messages
    in_bulk_itself: int


class _Queue(NamedTuple):
    """The main thread's seconds so far."""

    at: float
    ran: float
    waited: float  # runnable, but without a CPU
    quota: Optional[cgroup.Cpu]


class Sampler:
    """Keeps the last samples of every process, so that evidence has rates without waiting for them."""

    def __init__(
        self, notice_after: float = WatchdogPlan.notice_after, terminals: frozenset[str] = frozenset()
    ) -> None:
        """`terminals`: the names of the user's."""
        self._terminals = terminals
        # Only two looks at the sockets show a transfer, and a notice must not come before the second one.
        self._sockets_after = min(SUSPICION, notice_after / 3)
        self._sockets_every = min(_SOCKETS_EVERY, notice_after / 5)
        self._moments: dict[int, deque[_Moment]] = {}
        self._sent: dict[int, deque[_Sent]] = {}  # by pid of the rank
        self._traffic: dict[int, ports.Traffic] = {}  # by inode, at the last look
        self._sockets_at = 0.0
        self._queues: dict[int, deque[_Queue]] = {}
        self._queues_at = 0.0
        self._times: Optional[tuple[float, dict[int, float]]] = None  # of all processes, while some starve
        self.sockets_missing = ""

    def sample(self, rank: Rank, lines: dict[int, Line]) -> Sample:
        """Return the state of a rank now, with the last answer of its hook."""
        now = time.monotonic()
        children = family(rank.program)
        rank.note_children(children, now)
        hooks = {}
        if rank.initialized:  # an MPI rank spins while it waits, so all its CPU time counts
            hooks = {**{pid: lines[pid] for pid in children if pid in lines}, rank.program: rank.line}
        used = {
            pid: _without_hook(usage, pid, hooks.get(pid))
            for pid in [rank.program, *children]
            if (usage := self.touch(pid, now)) is not None
        }
        answer = rank.line.answer if rank.line is not None else None
        frames = frames_of(answer)
        deeper = [frames_of(lines[pid].answer) for pid in children if pid in lines]
        now_counted, is_doubtful = count(rank, answer)
        if answer is not None:
            rank.learn(answer)
        rank.steps.take(now, answer)
        stand = _stand(answer, frames, now_counted, is_doubtful)
        if stand is not None:
            rank.stands.append(stand)
        rank.mpi_mute = _is_mute_in_mpi(rank)
        rank.was_initialized = rank.was_initialized or bool(rank.initialized)
        printed, rank.printed = rank.printed, False
        repeats, rank.repeats = rank.repeats, True
        sent = self._sent.get(rank.program)
        return Sample(
            at=now,
            used=used,
            printed=printed,
            repeats=repeats,
            wanted=proc.wanted(rank.program),
            counted=now_counted,
            is_doubtful=is_doubtful,
            initialized=rank.initialized,
            sent=sent[-1].in_bulk if sent else None,
            sent_itself=sent[-1].in_bulk_itself if sent else None,
            main_io=proc.main_io(rank.program),
            asks=bool(self._terminals)
            and rank.progress.has_done_nothing_for(self._sockets_after, now)
            and self._asks_user([*_who_may_ask(rank.program, frames), *children]),
            frames=frames,
            deeper=tuple(each for each in deeper if each),
        )

    def _asks_user(self, pids: Iterable[int]) -> bool:
        """Whether one of these processes or threads waits for input from the user's terminal."""
        found = (ties.read_tie(pid, ties.Ends(())) for pid in pids)
        return any(tie is not None and tie.address in self._terminals for tie in found)

    def look_at_sockets(self, ranks: Iterable[Rank], *, always: bool = False) -> None:
        """Count the bytes through suspicious ranks' sockets, with one request to the kernel for all."""
        now = time.monotonic()
        suspects = [
            rank
            for rank in ranks
            if always
            or rank.progress.has_done_nothing_for(self._sockets_after, now)
            or (rank.initialized and rank.progress.is_only_transferring(now))
        ]
        self._sent = {rank.program: self._sent.get(rank.program, deque(maxlen=_KEPT)) for rank in suspects}
        if not suspects or self.sockets_missing or now - self._sockets_at < self._sockets_every:
            return
        self._sockets_at = now
        try:
            sent = ports.traffic_by_inode()
        except OSError as error:
            self.sockets_missing = f"sockets: {error.strerror or error}"
            self._sent = {}
            return
        bulk = {
            inode: _bulk(self._traffic[inode], its) for inode, its in sent.items() if inode in self._traffic
        }
        self._traffic = sent
        for rank in suspects:
            own = proc.socket_inodes(rank.program)
            of_all = own.union(*map(proc.socket_inodes, rank.children))
            by_all, by_itself = (sum(sent[each].moved for each in of & sent.keys()) for of in (of_all, own))
            looks = self._sent[rank.program]
            before = (looks[-1].in_bulk, looks[-1].in_bulk_itself) if looks else (0, 0)
            grown = (sum(bulk[each] for each in of & bulk.keys()) for of in (of_all, own))
            looks.append(_Sent(now, by_all, by_itself, *map(int.__add__, before, grown)))

    def look_at_queues(self, ranks: Iterable[Rank]) -> None:
        """Note how long the suspicious ranks have waited for a CPU, and who has the CPUs then."""
        now = time.monotonic()
        suspects = [rank for rank in ranks if rank.progress.is_suspicious(now)]
        if not suspects or now - self._queues_at < _QUEUES_EVERY:
            return
        self._queues_at = now
        for rank in suspects:
            self.queue(rank, now)
        starves = any(self._queue_facts(rank.program).get("delayed", 0.0) >= _STARVES for rank in suspects)
        if not starves or self._times is None or now - self._times[0] > _KEPT * _QUEUES_EVERY:
            self._times = (now, proc.cpu_times()) if starves else None

    def queue(self, rank: Rank, now: float) -> None:
        """Note how long the processes of a rank have waited for a CPU so far."""
        for pid in [rank.program, *rank.children[:_CHILDREN_QUEUED]]:
            words = proc.text(pid, "schedstat").split()
            if len(words) > 1:
                moment = _Queue(now, int(words[0]) / 1e9, int(words[1]) / 1e9, cgroup.cpu(pid=str(pid)))
                self._queues.setdefault(pid, deque(maxlen=_KEPT)).append(moment)

    def busiest(self, ours: Container[int]) -> list[Process]:
        """Return the processes outside the job that had most of the CPUs while ranks waited for one."""
        if self._times is None:
            return []
        before_at, before = self._times
        seconds = max(time.monotonic() - before_at, 0.001)
        shares = {
            pid: round((cpu - before[pid]) / seconds, 3)
            for pid, cpu in proc.cpu_times().items()
            if pid in before and pid not in ours
        }
        most = sorted((pid for pid, share in shares.items() if share >= _BUSY), key=lambda pid: -shares[pid])
        return [
            Process(pid, command=proc.command_line(pid)[:100], cpu_share=shares[pid])
            for pid in most[:_BUSIEST]
        ]

    def _queue_facts(self, pid: int) -> dict[str, Any]:
        moments = self._queues.get(pid)
        if not moments or len(moments) < 2:
            return {}
        before, after = moments[0], moments[-1]
        seconds = max(after.at - before.at, 0.001)
        facts = {
            "ran": round(min((after.ran - before.ran) / seconds, 1.0), 3),
            "delayed": round(min((after.waited - before.waited) / seconds, 1.0), 3),
        }
        if before.quota is not None and after.quota is not None:
            periods = after.quota.periods - before.quota.periods
            cut = after.quota.throttled - before.quota.throttled
            facts["throttled"] = round(max(cut, 0) / periods, 3) if periods > 0 else 0.0
            facts["cpu_limit"] = round(after.quota.limit, 2)
        return facts

    def touch(self, pid: int, now: float) -> Optional[proc.Usage]:
        """Sample a process, keep the sample, and return it."""
        usage = proc.usage(pid)
        if usage is not None:
            self._moments.setdefault(pid, deque(maxlen=_KEPT)).append(_Moment(now, usage))
        return usage

    def age(self, pid: int) -> float:
        """Return the seconds between the first and the last sample that are kept of a process."""
        moments = self._moments.get(pid)
        return moments[-1].at - moments[0].at if moments else 0.0

    def forget_all_but(self, pids: Iterable[int]) -> None:
        kept = set(pids)
        self._moments = {pid: moments for pid, moments in self._moments.items() if pid in kept}
        self._queues = {pid: moments for pid, moments in self._queues.items() if pid in kept}

    def process(self, pid: int) -> Optional[Process]:
        """Return a process's state and its rates over the last seconds, without stacks and role."""
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
        facts.update(self._queue_facts(pid))
        if stat.state == "Z" and os.WIFSIGNALED(stat.exit_status):
            facts["exit_signal"] = os.WTERMSIG(stat.exit_status)
        elif stat.state == "Z":
            facts["exit_code"] = os.WEXITSTATUS(stat.exit_status)
        sent = self._sent.get(pid)
        if sent:
            facts["net_bytes"] = sent[-1].by_all
        if sent and len(sent) > 1:
            seconds = max(sent[-1].at - sent[0].at, 0.001)
            facts["net_rate"] = round((sent[-1].by_all - sent[0].by_all) / seconds, 1)
        return Process(
            pid, stat.state, stat.command, proc.wchan(pid), stat.threads, memory=stat.memory, **facts
        )


def _bulk(before: ports.Traffic, after: ports.Traffic) -> int:
    """Return the bytes that a socket has moved, if it moves data: who asks a store sends small messages."""
    moved, pieces = after.moved - before.moved, after.pieces - before.pieces
    return moved if moved > 0 and moved >= _PIECE * pieces else 0


def _without_hook(usage: proc.Usage, pid: int, hook: Optional[Line]) -> proc.Usage:
    """Return what a process has used without the thread that answers us, which only moves when we ask."""
    if hook is None or not hook.thread:
        return usage
    return usage._replace(cpu=usage.cpu - proc.thread_cpu(pid, hook.thread))


def _who_may_ask(pid: int, frames: Optional[Sequence[Frame]]) -> Iterable[int]:
    """Return the main thread, or all threads where it waits for one of them, since a prompt may run there.

    A rank that waits for others, as in a collective, waits for no thread: one that reads is then no prompt.
    """
    for_thread = frames[0].file.endswith("/threading.py") if frames else ties.waits_for_lock(pid)
    return proc.thread_names(pid) if for_thread else (pid,)


def family(pid: int) -> list[int]:
    """Return the descendants of a process, the nearest first."""
    pids: list[int] = []
    generation = [pid]
    for _ in range(_DEPTH):
        generation = [child for parent in generation for child in proc.children(parent)]
        pids += generation
        if not generation or len(pids) > _CHILDREN:
            break
    return pids[:_CHILDREN]


def count(rank: Rank, answer: Optional[dict[str, Any]]) -> tuple[Optional[tuple[int, int]], bool]:
    """Return what `counted` returns, and whether that may lag: Gloo's threads overtake one another."""
    counts = counted(answer)
    if answer is None or counts is None:
        if rank.initialized and rank.line is not None and rank.line.ring_file:
            rank.counted = _count_unrecorded(rank, answer or {}, ring.counts(rank.line.ring_file))
            return rank.counted, False
        return None, False
    called, done = counts
    if rank.counted is not None and called >= rank.counted[0]:
        done = max(done, rank.counted[1])  # from an earlier dump's entries, or before a thread was overtaken
    gloo = (answer.get("recorders") or {}).get("gloo") or {}
    if "entries" in gloo:
        rank.settled = called
    rank.counted = called, done
    return rank.counted, bool(gloo) and called > done and rank.settled != called


def _count_unrecorded(
    rank: Rank, answer: dict[str, Any], made: Optional[tuple[int, int]]
) -> Optional[tuple[int, int]]:
    """Return calls begun and done, from torch's sequence numbers and the program's calls that are `made`.

    torch itself does not say whether its last call is done. It is not while the main thread is in it; until
    another call begins, a call that was done stays done.
    """
    if "sequences" not in answer:
        return made or rank.counted
    called = sum(number for number, *_ in answer["sequences"].values())
    before = rank.counted if rank.counted and rank.counted[0] == called else (called, 0)
    frames = frames_of(answer)
    if frames is not None:
        in_engine = reading.in_backward(frames) and proc.is_asleep(rank.program)
    elif "place" in answer:
        in_engine = answer["place"][0] == "engine"
    else:
        return before if before[1] else (called, called)
    waits = in_engine or (made is not None and made[0] > made[1])
    return called, max(called - 1 if waits else called, before[1])


def counted(answer: Optional[dict[str, Any]]) -> Optional[tuple[int, int]]:
    """Return the collectives called and done, summed over groups and backends; None without recorders."""
    if answer is None or not (answer.get("recorders") or answer.get("mpi")):
        return None
    returned = int((answer.get("mpi") or {}).get("returned", 0))
    pairs = [
        pair
        for dump in (answer.get("recorders") or {}).values()
        for pair in flight.counters(dump, as_brief=True).values()
    ]
    return returned + sum(called for called, _ in pairs), returned + sum(done for _, done in pairs)


def _stand(
    answer: Optional[dict[str, Any]],
    frames: Optional[list[Frame]],
    counts: Optional[tuple[int, int]],
    is_doubtful: bool,
) -> Optional[tuple[str, Optional[Frame]]]:
    """Return where a rank's main thread is, by `Stand.kind`, and the user's line; None: it was not seen.

    DDP waits inside backward(), in C++, and only counters show that. NCCL's counters do not, because it runs
    behind. Gloo's counters may lag; they are believed if the thread sleeps.
    """
    if answer is None or not answer.get("initialized"):
        return None
    if frames is not None:
        kind = "loader" if reading.in_loader(frames) else "collective" if reading.collective(frames) else ""
        site = reading.loader_caller(frames) if kind == "loader" else reading.user_frame(frames)
    elif answer.get("place"):
        kind, name, file, line = answer["place"]
        site = Frame(str(name), str(file), int(line)) if file else None
    else:
        return None
    gloo = list(answer.get("recorders") or {}) == ["gloo"] or "sequences" in answer
    if kind in ("", "engine"):
        waits = gloo and counts is not None and counts[0] > counts[1] and (kind or not is_doubtful)
        kind = "collective" if waits else ""
    return str(kind), site


def _is_mute_in_mpi(rank: Rank) -> bool:
    """Whether MPI probably holds the GIL. mpi4py does in MPI_Init, and while it duplicates a communicator."""
    line = rank.line
    return (
        line is not None and line.silent_for >= _MUTE and proc.maps_library(rank.program, stacks.MPI_LIBRARY)
    )


def frames_of(answer: Optional[dict[str, Any]]) -> Optional[list[Frame]]:
    """Return the main thread's frames, innermost first, from an answer to `look`."""
    if answer is None or "main_stack" not in answer:
        return None
    return [Frame(str(name), str(file), int(line)) for name, file, line in answer["main_stack"]["frames"]]
