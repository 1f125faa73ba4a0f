"""Collects evidence of all ranks of this node at one moment: from hooks, py-spy, faulthandler and /proc.

`supervisor` calls it when the hub asks, or at a bad end. It is bounded in time: a rank that does not answer
is described from outside, and named in `missing`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, Optional, Protocol

from ddplaunch.agent.contract import (
    Exited,
    Frame,
    Function,
    Handler,
    NodeEvidence,
    PhaseName,
    Process,
    RankEvidence,
    Ras,
    Stack,
)
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import cgroup, flight, kernel, py_spy, ras, stacks, ties, waits
from ddplaunch.agent.evidence.program_output import port_in_use
from ddplaunch.agent.evidence.stacks import SourceLines
from ddplaunch.agent.evidence.torch_versions import FIRST_WITH_GLOO
from ddplaunch.agent.evidence.waits import Thread, ThreadWaits
from ddplaunch.agent.interfaces import read
from ddplaunch.agent.platforms import places
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.supervisor import rank_evidence
from ddplaunch.agent.supervisor.hooks import Hooks, Line
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler, counted, family, frames_of
from ddplaunch.agent.system import proc, processes
from ddplaunch.agent.system.resolve import is_loopback
from ddplaunch.agent.text.quantities import some

_HOOK_WAIT = 1.0
"""Seconds for the hooks. They need milliseconds unless native code holds the GIL, or the CPUs are busy."""
_LONGEST_HOOK_WAIT = 5.0
_SECOND_LOOK = 0.5
_FAULT_WAIT = 1.0
_ENDS_WITHIN = 2.0
"""Seconds in which a Python that shuts down ends; one that takes longer waits for something."""
_NATIVE_WAIT = 1.0
"""Seconds that must be left for a look at native stacks; the look takes half of that."""
_CHILDREN_READ = 8
_COMPARED = stacks.FRAMES_KEPT // 2


@dataclasses.dataclass(frozen=True)
class Look:
    """Limits of one collection. `hide` takes secrets out of the data."""

    deadline: float  # a moment of time.monotonic()
    quick: bool = False  # no second stack
    dumps: int = 0  # bytes for whole flight recorders, packed
    hide: Callable[[Any], Any] = lambda data: data
    why: str = ""  # as in JobEvidence


class Source(Protocol):
    """A source of evidence by pid, for ranks without a hook, until a moment of time.monotonic()."""

    def answers(self, pids: Collection[int], deadline: float) -> dict[int, dict[str, Any]]:
        """Return flight recorders in the form in which a hook answers."""

    def stacks(self, pids: Collection[int], deadline: float) -> dict[int, list[Stack]]:
        """Return the stacks of each process."""


class Collector:
    """Collects evidence. It calls `meanwhile` every 20 ms while it waits, so that no death is missed."""

    def __init__(
        self,
        node: int,
        python: str,
        hooks: Hooks,
        sampler: Sampler,
        meanwhile: Callable[[], None],
        hooked: bool = True,
        source: Optional[Source] = None,
    ) -> None:
        self._node = node
        self._hooks = hooks
        self._hooked = hooked  # our launch command has given the hook to its ranks
        self._source = source
        self._sampler = sampler
        self._meanwhile = meanwhile
        self._py_spy = py_spy.find(python)
        self._kernel = kernel.KernelLog()
        self._kills = cgroup.memory().oom_kills
        self._began = time.time()
        self._cpu = cgroup.cpu()
        self._pids: set[int] = set()  # of all processes that were ever ours
        self._gpus: set[str] = set()  # that our processes have ever used
        self._missing: list[str] = []
        self._shm_peak = 0
        self._source_lines = SourceLines()
        self._handlers: dict[str, list[Handler]] = {}  # by file; who stood in one may have ended since

    def collect(
        self,
        ranks: Sequence[Rank],
        phase: PhaseName,
        look: Look,
        launch_exit: Optional[Exited],
        launch_output: list[str],
    ) -> NodeEvidence:
        """Return all evidence of this node."""
        self._missing = []
        alive = [rank for rank in ranks if rank.alive]
        in_use = kernel.gpus_in_use(rank.program for rank in alive)
        self._gpus |= in_use
        stalled = all(rank.progress.is_suspicious(time.monotonic()) for rank in alive)
        question = kernel.Question() if in_use and stalled and not look.quick else None
        dumps = flight.Dumps(look.dumps, look.hide)
        self._look(alive, look, dumps)
        self._tie([] if look.quick else alive)
        lines, silence = question.answer(self._meanwhile) if question is not None else ([], "")
        if silence:
            self._missing.append(silence)
        memory = cgroup.memory()
        size, used = shared_memory()
        if self._kernel.missing:
            self._missing.append(self._kernel.missing)
        if self._sampler.sockets_missing:
            self._missing.append(self._sampler.sockets_missing)
        self._hooks.listen(0.0)  # what ranks sent while others were looked at, before they ended
        self._meanwhile()
        evidence = [rank_evidence.evidence_so_far(rank) for rank in ranks]
        # A quick look is taken while ranks die, and once more after the end: then there is time to read.
        called = {} if look.quick and alive else called_lines(evidence)
        self._missing += unrecorded(evidence)
        held = handling_files(rank for rank in evidence if rank.in_flight)  # who may have ended meanwhile
        self._handlers.update(self._source_lines.find_handlers(held, self._began))
        living = [rank for rank in evidence if rank.alive]
        port = port_in_use(launch_output) if launch_exit is not None and not ranks else None
        functions = self._source_lines.find_functions(called, self._began)
        # This comes last, because it may crash a rank. If the job is ended next, that does no harm.
        answer = self._of_nccl(alive) if stalled and look.why == "deadline" and self._node == 0 else None
        return NodeEvidence(
            node=self._node,
            host=places.host(),
            at=time.time(),
            phase=phase,
            ranks=with_variables(evidence, functions),
            memory_limit=memory.limit,
            memory_used=memory.used,
            oom_kills=self.oom_kills(),
            kernel=self._kernel.naming(self._pids),
            shm_size=size,
            shm_used=used,
            shm_peak=None if used is None else max(self._shm_peak, used),
            throttled=self._throttled(),
            busiest=self._sampler.busiest({os.getpid(), *self._pids, *processes.descendants(os.getpid())}),
            launch_exit=launch_exit,
            launch_output=launch_output,
            launch_port=port,
            launch_port_holder=_holder(port),
            missing=self._missing,
            machine=f"{places.boot_id()} {places.network_namespace()}",
            addresses=_addresses(),
            xids=self._kernel.xids(self._pids, self._gpus),
            gpus=lines,
            dumps=dumps.made,
            dumps_left_out=dumps.left_out,
            loops={} if look.quick else self._source_lines.find_loops(main_files(living), self._began),
            handlers=dict(self._handlers),
            functions=functions,
            lines={} if look.quick else self._source_lines.read(named_frames(evidence)),
            ras=answer,
        )

    def oom_kills(self) -> int:
        """Return the OOM kills since the supervisor started."""
        return cgroup.memory().oom_kills - self._kills

    def remember(self, pids: Iterable[int]) -> None:
        """Keep kernel messages about these processes, even after they have ended."""
        self._pids.update(pids)

    def watch(self) -> None:
        """Note how full /dev/shm is, in a few microseconds: what a process holds there may end with it."""
        self._shm_peak = max(self._shm_peak, shared_memory()[1] or 0)

    def _of_nccl(self, alive: Sequence[Rank]) -> Optional[Ras]:
        where = ras.address(rank.program for rank in alive)
        answer, silence = ras.ask(where, self._meanwhile) if where is not None else (None, "")
        self._missing += [silence] if silence else []
        return answer

    def _throttled(self) -> Optional[float]:
        now = cgroup.cpu()
        if now is None or self._cpu is None or now.periods <= self._cpu.periods:
            return None
        return round((now.throttled - self._cpu.throttled) / (now.periods - self._cpu.periods), 3)

    # --- the ranks

    def _look(self, ranks: Sequence[Rank], look: Look, dumps: flight.Dumps) -> None:
        """Collect evidence of all `ranks` at once, and set it as each one's `evidence`."""
        deadline = look.deadline
        families = {rank: family(rank.program) for rank in ranks}
        lines = [rank.line for rank in ranks if rank.line is not None]
        lines += [
            self._hooks.lines[pid] for kin in families.values() for pid in kin if pid in self._hooks.lines
        ]
        now = time.monotonic()
        for rank, kin in families.items():
            self._sampler.queue(rank, now)
            for pid in kin:
                self._sampler.touch(pid, now)
        self._hooks.ask_all(lines, b"dump", min(deadline, now + hook_wait(deadline - now)), self._meanwhile)
        answers = {line.pid: line.answer for line in lines if line.answer and "threads" in line.answer}
        traces = {pid: stacks.from_hook(answer["threads"]) for pid, answer in answers.items()}
        sources = dict.fromkeys(traces, "hook")
        if self._source is not None:
            answers.update(self._source.answers([rank.program for rank in ranks], deadline))
        self._without_hook(ranks, families, traces, sources, deadline)
        moved: dict[Rank, bool] = {}
        thread_waits = ThreadWaits(_threads(traces), _silent(lines)) if not look.quick else ThreadWaits(())
        if not look.quick and time.monotonic() + _SECOND_LOOK < deadline:
            moved = self._look_again(ranks, families, traces)
        while thread_waits.is_open:
            self._hooks.listen(0.02)
            self._meanwhile()
            thread_waits.look_again()
        traces = {pid: [_waiting(pid, one, thread_waits) for one in its] for pid, its in traces.items()}
        for rank in ranks:
            rank.read_ring()
            self.remember([rank.pid, *families[rank]])
            its_stacks, source = traces.get(rank.program, []), sources.get(rank.program, "")
            newest = flight.newest(answers.get(rank.program, {}))
            rank.progress.note_call(time.monotonic() - max(0.0, time.time() - newest))
            for entry in answers.get(rank.program, {}).get("handled", []):
                rank.add_exception(rank_evidence.exception_from(entry, handled=True))
            if look.dumps:
                dumps.add(rank.number, answers.get(rank.program, {}))
            asks = rank.line is not None and thread_waits.asks_for_gil((rank.program, rank.line.thread))
            if asks and time.monotonic() + _NATIVE_WAIT < deadline:
                its_stacks = self._with_native(rank.program, its_stacks, deadline)
            children = [self._child(pid, rank, traces.get(pid, [])) for pid in families[rank]]
            told = answers.get(rank.program, {}).get("processes", [])
            rank.evidence = dataclasses.replace(
                rank_evidence.living_evidence(
                    rank,
                    answers.get(rank.program, {}),
                    its_stacks,
                    source,
                    now,
                    proc.is_asleep(rank.program),
                ),
                process=self._process(rank.program, answers.get(rank.program, {}).get("polls"), ranks),
                children=rank_evidence.with_processes(
                    rank, [child for child in children if child], told, now
                ),
                gil_wait=round(rank.line.mute_for, 1) if rank.line is not None and asks else 0.0,
                stack_moves=moved.get(rank, rank.progress.stack_moves or False),
            )

    def _without_hook(
        self,
        ranks: Sequence[Rank],
        families: dict[Rank, list[int]],
        traces: dict[int, list[Stack]],
        sources: dict[int, str],
        deadline: float,
    ) -> None:
        """Add stacks of ranks whose hook is missing or silent, and of loader workers that ranks wait for."""
        over = [rank for rank in ranks if rank.line is not None and rank.line.ending]
        wanted = {rank.program: rank for rank in ranks if rank.program not in traces and rank not in over}
        kin = [
            pid
            for rank in ranks
            if reading.in_loader(reading.main(traces.get(rank.program, [])))
            for pid in families[rank][:_CHILDREN_READ]
            if pid not in traces
        ]
        reasons: dict[int, str] = {}
        if self._py_spy is not None and (wanted or kin):
            by_py_spy, reasons = py_spy.dump(self._py_spy, [*wanted, *kin], deadline)
            traces.update(by_py_spy)
            sources.update(dict.fromkeys(by_py_spy, "py-spy"))
        if self._source is not None:
            left = [pid for pid in wanted if pid not in traces]
            by_server = self._source.stacks(left, deadline)
            traces.update(by_server)
            sources.update(dict.fromkeys(by_server, "debug server"))
        # The hook of a rank that ends no longer answers, but its Python may still run exit handlers.
        lasting = [rank for rank in over if rank.line and time.time() - rank.line.ending > _ENDS_WITHIN]
        silent = [rank for pid, rank in wanted.items() if pid not in traces] + lasting
        files = {rank.program: rank.line.fault_file for rank in silent if rank.line and rank.line.fault_file}
        for rank in silent:
            if rank.program in files and rank.line is not None:
                rank.line.woken_at = time.monotonic()
        by_signal = stacks.ask_faulthandler(
            files, min(deadline, time.monotonic() + _FAULT_WAIT), self._meanwhile
        )
        traces.update(by_signal)
        sources.update(dict.fromkeys(by_signal, "faulthandler"))
        self._missing += [
            f"stack of rank {rank.number}: its Python has ended"
            for rank in over
            if rank.program not in traces
        ]
        blind: dict[str, list[int]] = {}
        for pid, rank in wanted.items():
            if pid in traces:
                if proc.maps_library(pid, stacks.MPI_LIBRARY):
                    traces[pid] = stacks.with_mpi_function(
                        traces[pid], bool(rank.line and rank.line.mpi_ready)
                    )
                continue
            hook = "not connected" if rank.line is None else f"silent for {rank.line.silent_for:.1f} s"
            why = f"hook {hook}; " if self._hooked else ""
            blind.setdefault(why + reasons.get(pid, "py-spy: not found"), []).append(rank.number)
        self._missing += [f"stacks of {some('rank', those)}: {why}" for why, those in blind.items()]

    def _with_native(self, pid: int, its_stacks: list[Stack], deadline: float) -> list[Stack]:
        """Return the stacks with the native function of the thread that holds the GIL, if it is available."""
        if self._py_spy is None or not any(stack.owns_gil for stack in its_stacks):
            return its_stacks
        tid, native = py_spy.native(self._py_spy, pid, deadline)
        return [
            dataclasses.replace(stack, native=native) if stack.owns_gil and stack.tid == tid else stack
            for stack in its_stacks
        ]

    def _look_again(
        self, ranks: Sequence[Rank], families: dict[Rank, list[int]], traces: dict[int, list[Stack]]
    ) -> dict[Rank, bool]:
        """Take second stacks, and samples of young processes. Returns which ranks' stacks have moved."""
        unknown = [
            rank
            for rank in ranks
            if rank.line is not None and (rank.progress.stack_moves is None or rank.mpi)
        ]
        young = [pid for kin in families.values() for pid in kin if self._sampler.age(pid) < _SECOND_LOOK]
        if not unknown and not young:
            return {}
        until = time.monotonic() + _SECOND_LOOK
        while time.monotonic() < until:
            self._hooks.listen(0.02)
            self._meanwhile()
        now = time.monotonic()
        for pid in {*young, *(rank.program for rank in ranks)}:
            self._sampler.touch(pid, now)
        before = {rank: counted(rank.line.answer) for rank in unknown if rank.line is not None}
        lines = [rank.line for rank in unknown if rank.line is not None]
        self._hooks.ask_all(lines, b"look", now + _SECOND_LOOK, self._meanwhile)
        moved = {}
        for rank in unknown:
            answer = rank.line.answer if rank.line is not None else None
            if rank.mpi and answer is not None and counted(answer) != before.get(rank):
                rank.progress.note_deed(now)  # on the same line as before, but in another call
            first, second = reading.main(traces.get(rank.program, [])), frames_of(answer)
            if first and second is not None:
                moved[rank] = first[:_COMPARED] != second[:_COMPARED]
        return moved

    def _process(self, pid: int, polls: Any = None, ranks: Sequence[Rank] = ()) -> Optional[Process]:
        process = self._sampler.process(pid)
        if process is None:
            return None
        wait = waits.read_wait(pid, process.state, process.wchan)
        wait = wait or waits.polled_lock(pid, polls, (rank.program for rank in ranks))
        return dataclasses.replace(process, waits_for=wait)

    def _tie(self, ranks: Sequence[Rank]) -> None:
        """Add what ranks wait for that are in no collective, and what their children wait for."""
        ends = ties.Ends(pid for rank in ranks for pid in (rank.program, *family(rank.program)))
        for rank in ranks:
            its = rank.evidence
            if its is None or its.process is None or reading.collective(reading.main(its.stacks)):
                continue
            rank.evidence = dataclasses.replace(
                its,
                process=self._tied(its.process, ends, []),
                children=[self._tied(child, ends, [rank.program]) for child in its.children],
            )

    def _tied(self, process: Process, ends: ties.Ends, parents: Sequence[int]) -> Process:
        """Return the process with what it waits for in others, and how many threads have no stack."""
        line = self._hooks.lines.get(process.pid)
        seen = len(process.stacks) + (line is not None and line.thread > 0)
        return dataclasses.replace(
            process,
            tie=ties.read_tie(process.pid, ends) if process.state == "S" else None,
            mutex=ties.read_mutex(process.pid, parents) if process.state == "S" else None,
            unseen_threads=max(-1, process.threads - seen) if process.stacks else -1,
        )

    def _child(self, pid: int, rank: Rank, child_stacks: list[Stack]) -> Optional[Process]:
        process = self._process(pid)
        if process is None:
            return None
        if process.command.startswith("pt_data"):
            role = "loader"
        elif child_stacks:
            names = {frame.name for frame in reading.main(child_stacks)}
            role = "loader" if "_worker_loop" in names else "other"
        else:  # forked without exec, as torch's data loader does
            role = "loader" if proc.command_line(pid) == proc.command_line(rank.program) else "other"
        return dataclasses.replace(process, role=role, stacks=child_stacks)


def hook_wait(left: float) -> float:
    """Return the seconds to wait for the hooks' answers, out of the `left` ones of the whole look.

    Where several threads wait for each CPU, a hook that is fine gets its turn late. Half of the time is kept
    for the other ways to see a rank.
    """
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(_HOOK_WAIT, min(_HOOK_WAIT * load, left / 2, _LONGEST_HOOK_WAIT))


def _threads(traces: dict[int, list[Stack]]) -> Iterator[Thread]:
    """Yield the threads of processes that wait in no collective."""
    for pid, its_stacks in traces.items():
        if reading.collective(reading.main(its_stacks)) is None:
            yield from ((pid, _tid(pid, stack)) for stack in its_stacks)


def _silent(lines: Iterable[Line]) -> Iterator[Thread]:
    """Yield the threads of hooks that have not answered yet."""
    yield from ((line.pid, line.thread) for line in lines if line.is_open and line.request and line.thread)


def _tid(pid: int, stack: Stack) -> int:
    return pid if stack.main else stack.tid


def _waiting(pid: int, stack: Stack, waits: ThreadWaits) -> Stack:
    return dataclasses.replace(stack, on_lock=True) if waits.is_on_lock((pid, _tid(pid, stack))) else stack


def named_frames(ranks: Iterable[RankEvidence]) -> set[tuple[Frame, int]]:
    """Return the frames whose source lines are shown, each with the pid of its rank.

    These are the innermost frame of each thread of a living rank and of its children, and the innermost frame
    in the user's code; of the main thread, all frames there.
    """
    return {
        (frame, rank.pid)
        for rank in ranks
        if rank.alive
        for stack in [*rank.stacks, *(stack for child in rank.children for stack in child.stacks)]
        for frame in [
            *stack.frames[:1],
            reading.user_frame(stack.frames),
            reading.worker_task(stack.frames),
            reading.loader_caller(stack.frames),
            *(reading.users(stack.frames) if stack.main else []),
        ]
        if frame is not None
    }


def unrecorded(ranks: Iterable[RankEvidence]) -> list[str]:
    """Return what torch does not record of these ranks' calls."""
    versions = sorted({rank.unrecorded for rank in ranks} - {""})
    return [
        f"calls that torch makes with Gloo by itself, as for DDP: torch {each} does not record them, only "
        f"their number is known; torch {FIRST_WITH_GLOO} records them"
        for each in versions
    ]


def main_files(ranks: Iterable[RankEvidence]) -> dict[str, int]:
    """Return the user's files that the ranks' main threads are in, each with one process."""
    return {frame.file: rank.pid for rank in ranks for frame in reading.users(reading.main(rank.stacks))}


def handling_files(ranks: Iterable[RankEvidence]) -> dict[str, int]:
    """Return the user's files in which ranks handle an exception, or did when another one ended them."""
    ended = {
        frame.file: rank.pid for rank in ranks for each in rank.raised for frame in reading.users(each.frames)
    }
    return {**ended, **main_files(ranks)}


def called_lines(ranks: Iterable[RankEvidence]) -> dict[str, tuple[int, set[int]]]:
    """Return by file the lines where ranks' main threads are or have raised, and those of their calls.

    With each file comes a process that knows it, a living one if there is any.
    """
    places: dict[str, tuple[int, set[int]]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.alive):
        frames = [*reading.main(rank.stacks), *(frame for each in rank.raised for frame in each.frames)]
        frames += [frame for each in rank.left[:1] for frame in each.frames]
        frames += [frame for call in rank.calls for frame in call.frames]
        frames += [site.line for sequence in rank.sequences for site in sequence.sites]
        for frame in reading.users(frames):
            lines = places.get(frame.file, (0, set()))[1]
            places[frame.file] = (rank.pid, {*lines, frame.line})
    return places


def with_variables(
    ranks: Sequence[RankEvidence], functions: Mapping[str, Sequence[Function]]
) -> list[RankEvidence]:
    """Add the environment variables that branches of the program read, of ranks that are alive."""
    names = {
        name
        for of_file in functions.values()
        for function in of_file
        for branch in function.branches
        for name in branch.variables
    }
    if not names:
        return [*ranks]
    return [
        dataclasses.replace(
            rank, variables=_variables(rank.process.pid if rank.process is not None else rank.pid, names)
        )
        if rank.alive
        else rank
        for rank in ranks
    ]


def _variables(pid: int, names: Iterable[str]) -> dict[str, str]:
    """Return a digest of the value of each; "": it is not set. None at all if they cannot be read."""
    its = proc.environment(pid)
    return {name: _fingerprint(its[name]) if name in its else "" for name in sorted(names)} if its else {}


def _fingerprint(value: str) -> str:
    """Return what shows whether ranks have the same value, and is too short to find a secret by it."""
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:4]


def _holder(port: Optional[int]) -> str:
    """Return who holds the port, in words; "" if nobody does any more, or there is none."""
    holder = holder_of_port(port) if port else None
    return holder.text if holder is not None else ""


def _addresses() -> list[str]:
    try:
        return [each.address for each in read.addresses() if not is_loopback(each.address)]
    except OSError:
        return []


def shared_memory(path: str = "/dev/shm") -> tuple[Optional[int], Optional[int]]:  # noqa: S108 - only looked at
    """Return the size and the use in bytes."""
    try:
        facts = os.statvfs(path)
    except OSError:
        return None, None
    return facts.f_blocks * facts.f_frsize, (facts.f_blocks - facts.f_bfree) * facts.f_frsize
