"""Collects evidence of all ranks of this node at one moment: from hooks, py-spy, faulthandler and /proc.

Bounded: who does not answer in time is described by what can be seen from outside, and named in `missing`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from ddplaunch.agent.contract import Exited, NodeEvidence, Process, Stack
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import cgroup, kernel, mpi_stacks, py_spy, stacks
from ddplaunch.agent.interfaces import read
from ddplaunch.agent.platforms import physical_host
from ddplaunch.agent.supervisor import rank_evidence
from ddplaunch.agent.supervisor.hooks import Hooks
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler, counted, family, frames_of
from ddplaunch.agent.system import host_identity, proc
from ddplaunch.agent.system.resolve import is_loopback

_HOOK_WAIT = 1.0
"""Seconds for the hooks. They need milliseconds unless native code holds the GIL."""
_SECOND_LOOK = 0.5
_FAULT_WAIT = 1.0
_WRITTEN = 0.1
"""Seconds in which a dump has not grown when it is whole: nothing tells its end."""
_CHILDREN_READ = 8
_COMPARED = stacks.FRAMES_KEPT // 2
DUMP_SIGNAL = signal.SIGRTMIN + 6  # as the hook registers it


class Collector:
    """`meanwhile` is called while it waits, at least every 20 ms: the supervisor must not miss a death."""

    def __init__(
        self, node: int, python: str, hooks: Hooks, sampler: Sampler, meanwhile: Callable[[], None]
    ) -> None:
        self._node = node
        self._hooks = hooks
        self._sampler = sampler
        self._meanwhile = meanwhile
        self._py_spy = py_spy.find(python)
        self._kernel = kernel.KernelLog()
        self._kills = cgroup.memory().oom_kills
        self._cpu = cgroup.cpu()
        self._pids: set[int] = set()  # of all processes that were ever ours
        self._missing: list[str] = []

    def node(
        self,
        ranks: Sequence[Rank],
        phase: str,
        deadline: float,
        launch_exit: Optional[Exited],
        launch_output: list[str],
        in_haste: bool = False,
    ) -> NodeEvidence:
        """Return all evidence; `deadline` is a moment of time.monotonic(). In haste: no second look."""
        self._missing = []
        self._look([rank for rank in ranks if rank.alive], deadline, in_haste)
        memory = cgroup.memory()
        size, used = _shared_memory()
        if self._kernel.missing:
            self._missing.append(self._kernel.missing)
        if self._sampler.sockets_missing:
            self._missing.append(self._sampler.sockets_missing)
        return NodeEvidence(
            node=self._node,
            host=physical_host.host(),
            at=time.time(),
            phase=phase,
            ranks=[rank_evidence.so_far(rank) for rank in ranks],
            memory_limit=memory.limit,
            memory_used=memory.used,
            oom_kills=self.oom_kills(),
            kernel=self._kernel.naming(self._pids),
            shm_size=size,
            shm_used=used,
            throttled=self._throttled(),
            launch_exit=launch_exit,
            launch_output=launch_output,
            missing=self._missing,
            machine=f"{host_identity.machine()} {host_identity.network()}",
            addresses=_addresses(),
        )

    def oom_kills(self) -> int:
        """Since the supervisor started."""
        return cgroup.memory().oom_kills - self._kills

    def remember(self, pids: Iterable[int]) -> None:
        """These are ours: kernel messages about them are kept, also after their end."""
        self._pids.update(pids)

    def _throttled(self) -> Optional[float]:
        now = cgroup.cpu()
        if now is None or self._cpu is None or now.periods <= self._cpu.periods:
            return None
        return round((now.throttled - self._cpu.throttled) / (now.periods - self._cpu.periods), 3)

    # --- the ranks

    def _look(self, ranks: Sequence[Rank], deadline: float, in_haste: bool) -> None:
        """Take evidence of `ranks`, all at once, and leave it with each."""
        families = {rank: family(rank.program) for rank in ranks}
        lines = [rank.line for rank in ranks if rank.line is not None]
        lines += [
            self._hooks.lines[pid] for kin in families.values() for pid in kin if pid in self._hooks.lines
        ]
        now = time.monotonic()
        for kin in families.values():
            for pid in kin:
                self._sampler.touch(pid, now)
        self._hooks.gather(lines, b"dump", min(deadline, now + _HOOK_WAIT), self._meanwhile)
        answers = {line.pid: line.answer for line in lines if line.answer and "threads" in line.answer}
        found = {pid: stacks.from_hook(answer["threads"]) for pid, answer in answers.items()}
        sources = dict.fromkeys(found, "hook")
        self._without_hook(ranks, families, found, sources, deadline)
        moved: dict[Rank, bool] = {}
        if not in_haste and time.monotonic() + _SECOND_LOOK < deadline:
            moved = self._look_again(ranks, families, found)
        for rank in ranks:
            rank.read_ring()
            self.remember([rank.pid, *families[rank]])
            its_stacks, source = found.get(rank.program, []), sources.get(rank.program, "")
            for entry in answers.get(rank.program, {}).get("handled", []):
                rank.add(rank_evidence.raised(entry, handled=True))
            children = [self._child(pid, rank, found.get(pid, [])) for pid in families[rank]]
            rank.evidence = dataclasses.replace(
                rank_evidence.alive(rank, answers.get(rank.program, {}), its_stacks, source, now),
                process=self._sampler.process(rank.program),
                children=[child for child in children if child is not None],
                stack_moves=moved.get(rank, rank.progress.stack_moves or False),
            )

    def _without_hook(
        self,
        ranks: Sequence[Rank],
        families: dict[Rank, list[int]],
        found: dict[int, list[Stack]],
        sources: dict[int, str],
        deadline: float,
    ) -> None:
        """Stacks of ranks whose hook is not there or does not answer, and of loader workers that matter."""
        over = [rank for rank in ranks if rank.line is not None and rank.line.ending]
        wanted = {rank.program: rank for rank in ranks if rank.program not in found and rank not in over}
        kin = [
            pid
            for rank in ranks
            if reading.in_loader(reading.main(found.get(rank.program, [])))
            for pid in families[rank][:_CHILDREN_READ]
            if pid not in found
        ]
        self._missing += [f"stack of rank {rank.number}: its Python has ended" for rank in over]
        reasons: dict[int, str] = {}
        if self._py_spy is not None and (wanted or kin):
            by_py_spy, reasons = py_spy.dump(self._py_spy, [*wanted, *kin], deadline)
            found.update(by_py_spy)
            sources.update(dict.fromkeys(by_py_spy, "py-spy"))
        silent = [rank for pid, rank in wanted.items() if pid not in found]
        by_signal = {pid: its for pid, its in self._by_signal(silent, deadline).items() if its}
        found.update(by_signal)
        sources.update(dict.fromkeys(by_signal, "faulthandler"))
        for pid, rank in wanted.items():
            if pid in found:
                if proc.maps_library(pid, mpi_stacks.LIBRARY):
                    found[pid] = mpi_stacks.with_function(found[pid], bool(rank.line and rank.line.mpi_ready))
                continue
            hook = "not connected" if rank.line is None else f"silent for {rank.line.silent_for:.1f} s"
            spy = reasons.get(pid, "py-spy: not found")
            self._missing.append(f"stacks of rank {rank.number}: hook {hook}; {spy}")

    def _by_signal(self, ranks: Iterable[Rank], deadline: float) -> dict[int, list[Stack]]:
        """Ask faulthandler, which needs no GIL. Only where the hook said that it listens: else it kills."""
        dumps: dict[int, _Dump] = {}
        for rank in ranks:
            if rank.line is not None and rank.line.fault_file:
                with contextlib.suppress(OSError):
                    dump = _Dump(rank.line.fault_file)
                    os.kill(rank.program, DUMP_SIGNAL)
                    dumps[rank.program] = dump
        until = min(deadline, time.monotonic() + _FAULT_WAIT)
        while time.monotonic() < until and False in {dump.is_whole() for dump in dumps.values()}:
            time.sleep(0.02)
            self._meanwhile()
        return {pid: dump.read() for pid, dump in dumps.items()}

    def _look_again(
        self, ranks: Sequence[Rank], families: dict[Rank, list[int]], found: dict[int, list[Stack]]
    ) -> dict[Rank, bool]:
        """Look once more where a stack may move; young processes get rates by it. Returns what moved."""
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
        self._hooks.gather(lines, b"look", now + _SECOND_LOOK, self._meanwhile)
        moved = {}
        for rank in unknown:
            answer = rank.line.answer if rank.line is not None else None
            if rank.mpi and answer is not None and counted(answer) != before.get(rank):
                rank.progress.got_on(now)  # in the same line as before, but not in the same call
            first, second = reading.main(found.get(rank.program, [])), frames_of(answer)
            if first and second is not None:
                moved[rank] = first[:_COMPARED] != second[:_COMPARED]
        return moved

    def _child(self, pid: int, rank: Rank, its_stacks: list[Stack]) -> Optional[Process]:
        process = self._sampler.process(pid)
        if process is None:
            return None
        if process.command.startswith("pt_data"):
            role = "loader"
        elif its_stacks:
            names = {frame.name for frame in reading.main(its_stacks)}
            role = "loader" if "_worker_loop" in names else "other"
        else:  # forked, and nothing else executed: what torch's loader does
            role = "loader" if proc.command_line(pid) == proc.command_line(rank.program) else "other"
        return dataclasses.replace(process, role=role, stacks=its_stacks)


class _Dump:
    """Text that faulthandler adds to a file from now on. Raises OSError where there is no such file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115 - until it is read
        self._begin = self._size = os.fstat(self._file.fileno()).st_size
        self._grown = time.monotonic()

    def is_whole(self) -> bool:
        size, now = os.fstat(self._file.fileno()).st_size, time.monotonic()
        if size > self._size:
            self._size, self._grown = size, now
        return self._size > self._begin and now - self._grown >= _WRITTEN

    def read(self) -> list[Stack]:
        with self._file as file:
            file.seek(self._begin)
            return stacks.from_faulthandler(file.read())


def _addresses() -> list[str]:
    try:
        return [each.address for each in read.addresses() if not is_loopback(each.address)]
    except OSError:
        return []


def _shared_memory() -> tuple[Optional[int], Optional[int]]:
    try:
        facts = os.statvfs("/dev/shm")  # noqa: S108 - nothing is written there
    except OSError:
        return None, None
    return facts.f_blocks * facts.f_frsize, (facts.f_blocks - facts.f_bfree) * facts.f_frsize
