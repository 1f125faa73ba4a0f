"""The ranks of this node among our descendants: the state of each one, and how it ended.

`rank_roles` decides which process is which rank. A plain program with the hook stands in for rank 0 until a
real rank appears.
"""

from __future__ import annotations

import dataclasses
import os
import re
import select
import signal
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from ddplaunch.agent.contract import Exited, Frame, Phase, PhaseName, Raised, RankEvidence, Rendezvous, Stack
from ddplaunch.agent.evidence import ring, stacks
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_progress import Progress, Steps
from ddplaunch.agent.system import proc, processes

RAISED_KEPT = 20
_LOOKS = 60
_TIMEOUT, _NCCL_TIMEOUT = 1800.0, 600.0
"""Seconds that a group has if the program does not say: torch's defaults."""
_LINES = 100
"""Lines with which a rank's new lines are compared."""
_NUMBERS = re.compile(rb"[\d.,:%?|/#\s\xe2\x96\x80-\x9f]+")
"""What changes in a line that says the same thing again: numbers, times, the blocks of a progress bar."""
_GONE_KEPT = 32
_SAME_EXCEPTION = 2.0
"""Seconds within which hook and log report the same exception."""
_TORCHRUN_PATIENCE = 4.0
"""Seconds after SIGTERM before which a SIGKILL is not torchrun's: torchrun waits 30 s by default."""


class Rank:
    """One worker process. After a restart, another process that is the same rank is another Rank."""

    def __init__(self, number: int, local: int, pid: int, placeholder: bool = False) -> None:
        self.number = number
        self.local = local
        self.pid = pid
        stat = proc.stat(pid)
        self.started = stat.started if stat is not None else 0
        self.parent = stat.parent if stat is not None else 0
        self.placeholder = placeholder
        # torchrun's count of restarts, and how many it allows; None: another launcher has started it.
        self.restart, self.max_restarts = _restarts(pid)
        self.children: list[int] = []  # descendants at the last sample
        self.gone: dict[int, float] = {}  # those that have ended since, at time.monotonic(); bounded
        self.world_size: Optional[int] = None
        self.numbered_by = ""
        self.rendezvous: Optional[Rendezvous] = None  # from its last call of init_process_group
        self.line: Optional[Line] = None
        self.released = False  # its keeper knows that we have seen its end
        self.keeper: Optional[Line] = None  # its parent, if MPI's launcher has started it
        self.progress = Progress(time.monotonic())
        self.steps = Steps()
        self.exit: Optional[Exited] = None
        self.initialized: Optional[bool] = None
        self.group_timeout: Optional[float] = None  # the longest of its groups', as its hook last reported it
        self.was_initialized = False
        self.passed_at = 0.0  # time.time() at which its last call of init_process_group returned
        self.counted: Optional[tuple[int, int]] = None
        self.settled = 0  # collectives called when a full dump last showed which ones are done
        self.stands: deque[tuple[str, Optional[Frame]]] = deque(maxlen=_LOOKS)
        self.mpi_mute = False  # MPI is loaded, and native code holds the GIL
        self.raised: list[Raised] = []
        self.in_flight: list[Raised] = []  # what it was handling when it raised what has ended it
        self.last_output = ""
        self.last_output_at = 0.0
        self.last_lines: list[str] = []
        self.printed = False
        self.repeats = True  # what it has printed since the last sample differs only in numbers
        self._last_printed: dict[bytes, None] = {}  # the last different lines, the newest at the end
        self.evidence: Optional[RankEvidence] = None  # the last evidence taken while it was alive
        self.ring: Optional[ring.Ring] = None  # as last read; the file outlives the process
        self.crash: list[Stack] = []  # where it crashed; empty: it has not, or nobody knows where
        self._descriptor = processes.open_pid(pid)

    @property
    def program(self) -> int:
        """Return the process to sample: the interpreter, if the worker is a shell script around it."""
        return self.line.pid if self.line is not None else self.pid

    def question(self, suspicious: bool, measured: bool = False) -> bytes:
        """Return the next request to its hook. It is a full dump only if counters and stack leave doubts.

        `measured`: its recorder may be read to measure the steps of a healthy job.
        """
        if not suspicious:
            return b"steps" if measured and self.steps.claim_read(time.monotonic()) else b"count"
        return b"dump" if self.progress.leaves_doubts else b"look"

    @property
    def alive(self) -> bool:
        return self.exit is None

    def is_or_was(self, pid: int) -> bool:
        """Whether `pid` is or was this process, and not a later one with the same number."""
        stat = proc.stat(pid)
        return pid == self.pid and (stat is None or stat.started == self.started)

    @property
    def phase(self) -> PhaseName:
        if not self.alive:
            return Phase.ENDED
        if (self.line is not None and self.line.ending) or (self.was_initialized and not self.initialized):
            return Phase.FINALIZING
        if self.mpi and not self.initialized and not self.mpi_mute:
            return Phase.RUNNING  # collectives of MPI are not counted
        if not self.initialized:
            return Phase.INIT
        return Phase.RUNNING if self.counted and self.counted[1] > 0 else Phase.FIRST

    @property
    def mpi(self) -> str:
        """Return the state of MPI in the contract's words (RankEvidence)."""
        if self.line is not None and self.line.mpi_ready:
            return "ending" if self.line.ending else "ready"
        return "loaded" if self.mpi_mute else ""

    @property
    def timeout(self) -> Optional[float]:
        """Return the seconds for which torch lets it wait; None: it neither has nor is making a group."""
        call = self.rendezvous
        if call is not None and not self.was_initialized:
            default = _NCCL_TIMEOUT if call.backend == "nccl" else _TIMEOUT
            return default if call.timeout is None else call.timeout
        if self.group_timeout is not None or not self.initialized:
            return self.group_timeout
        given = None if call is None else call.timeout
        return max(_TIMEOUT, given or 0.0)

    def note_passed(self) -> None:
        """Note that its call of init_process_group has returned."""
        self.initialized = self.was_initialized = True
        self.passed_at = time.time()
        if self.rendezvous is not None:
            self.rendezvous = dataclasses.replace(self.rendezvous, passed=True)

    def add_exception(self, raised: Raised) -> None:
        """Add an exception, unless it is known already: hook and log report the same ones."""
        for index, known in enumerate(self.raised):
            if _is_same(known, raised):
                if _weight(raised) > _weight(known):
                    self.raised[index] = raised
                return
        self.raised = sorted([*self.raised, raised], key=lambda each: each.at)[-RAISED_KEPT:]

    def note_children(self, pids: list[int], now: float) -> None:
        """Note its descendants, and which of them are gone."""
        self.gone.update(dict.fromkeys(set(self.children).difference(pids), now))
        for pid in [*self.gone][:-_GONE_KEPT]:
            del self.gone[pid]
        self.children = pids

    def learn(self, answer: Mapping[str, Any]) -> None:
        """Learn from its hook's answer whether it has a group, and for how long that group lets it wait."""
        if answer.get("at", 0.0) >= self.passed_at:  # else it was sent before init_process_group returned
            self.initialized = bool(answer.get("initialized", self.initialized))
        if answer.get("timeout") is not None:
            self.group_timeout = float(answer["timeout"])

    def note_lines(self, lines: Iterable[bytes]) -> None:
        """Note lines that it has printed, or that have changed, as a progress bar does."""
        self.printed = True
        for line in lines:
            text = _NUMBERS.sub(b"0", line.strip())
            self.repeats = self.repeats and text in self._last_printed
            self._last_printed.pop(text, None)
            self._last_printed[text] = None
        while len(self._last_printed) > _LINES:
            del self._last_printed[next(iter(self._last_printed))]

    def read_ring(self) -> None:
        """Read its last calls of torch.distributed, even after it has ended."""
        if self.line is not None and self.line.ring_file:
            self.ring = ring.read(self.line.ring_file) or self.ring

    def look_for_end(self) -> bool:
        """Return whether it has ended; if so, set `exit`."""
        if self._descriptor is not None and not select.select([self._descriptor], [], [], 0)[0]:
            return False
        stat = proc.stat(self.pid)
        if stat is not None and stat.started == self.started and stat.state not in "ZX":
            return False
        if self.keeper is not None and self.keeper.is_open and not self.keeper.ending:
            return False  # it will report in a moment whether it got a signal to end the rank
        if stat is not None and stat.started == self.started:
            status: Optional[int] = stat.exit_status
        else:  # already reaped: only Linux 6.15 and later still has its status
            status = proc.exit_status(self._descriptor) if self._descriptor is not None else None
        self.close()
        self.read_ring()
        if self.line is not None and self.line.fault_file:
            self.crash = stacks.read_crash(self.line.fault_file)
        # MPI's launcher ends ranks by a signal to their keepers. If a keeper ends without a message, it was
        # killed.
        self.exit = end_by_status(status)
        if self.exit.code == 0 and self.line is not None and self.line.ending:
            # Peers may have missed it since then, because shutting down an interpreter may take seconds.
            self.exit = dataclasses.replace(self.exit, at=self.line.ending)
        if self.keeper is not None:
            killed = self.exit.signal in (signal.SIGKILL, signal.SIGTERM, None) and not self.exit.code
            sent_away = self.keeper.signalled or (killed and not self.keeper.ending)
            self.exit = dataclasses.replace(self.exit, by_us=sent_away)
        return True

    def excuse(self, since: Optional[float]) -> None:
        """Mark its end as our doing if torchrun or we ended it. `since`: when that began, if it did."""
        assert self.exit is not None
        if self.exit.by_us or since is None or self.exit.at < since:
            return
        if self.exit.signal == signal.SIGKILL:
            by_us = self.exit.at - since > _TORCHRUN_PATIENCE
        else:  # torchrun may reap a rank that it has ended before we can read the status
            unseen = self.exit.signal is None and self.exit.code is None
            by_us = unseen or signal.SIGTERM in (self.exit.signal, (self.exit.code or 0) - 128)
        self.exit = dataclasses.replace(self.exit, by_us=by_us)

    def learn_exit(self, code: int) -> None:
        """Set its exit code from torchrun's report, if it is unknown; negative for a signal."""
        if self.exit is not None and self.exit.code is None and self.exit.signal is None:
            self.exit = Exited(self.exit.at, code if code >= 0 else None, -code if code < 0 else None)

    def fileno(self) -> Optional[int]:
        """Return a descriptor that becomes readable when the process has ended; None before Linux 5.3."""
        return self._descriptor

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _restarts(pid: int) -> tuple[Optional[int], Optional[int]]:
    environment = proc.environment(pid)
    count, most = (environment.get(f"TORCHELASTIC_{name}", "") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return int(count) if count.isdecimal() else None, int(most) if most.isdecimal() else None


def _is_same(known: Raised, raised: Raised) -> bool:
    if known.type.rpartition(".")[2] != raised.type.rpartition(".")[2]:
        return False
    if known.source == raised.source == "hook" and known.frames == raised.frames:
        return known.message == raised.message
    other = known.source != raised.source or known.handled != raised.handled
    return other and abs(known.at - raised.at) < _SAME_EXCEPTION


def _weight(raised: Raised) -> tuple[bool, bool]:
    """Return how much a report weighs: fatal before caught, hook before log."""
    return not raised.handled, raised.source == "hook"


def end_by_status(status: Optional[int]) -> Exited:
    """Return an end that is now, from the `status` of waitpid(2); None: unknown."""
    now = time.time()
    if status is None:
        return Exited(now)
    return (
        Exited(now, signal=os.WTERMSIG(status))
        if os.WIFSIGNALED(status)
        else Exited(now, os.WEXITSTATUS(status))
    )


def is_bad_end(exited: Optional[Exited]) -> bool:
    """Whether torchrun will end the other ranks because of this end."""
    return exited is not None and exited.code != 0
