"""Feeds inputs in child processes, which may hang, crash and swell, and measures each input."""

from __future__ import annotations

import dataclasses
import gc
import json
import mmap
import resource
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from tests.fuzz import target

SECONDS = 1.0
"""Longest that one input may take."""
MEMORY = 200 << 20
"""Bytes at most of the process that reads it, Python and all."""
BATCH = 1000
"""Inputs for one child: what they leave behind in its memory does not add up for ever."""
_AGAIN = 2
"""Times that a slow input is tried again: on a busy machine any of them may be."""
_STUCK = 20
"""Seconds after which an input is ended; one that only waits is slow however busy the machine is."""
_ROOM = 4 << 30
"""Bytes of address space for a child, so that a bug cannot take the machine's memory."""
_KEPT = 20
"""Bugs of a batch that are told."""


class StuckError(BaseException):
    """The input takes far too long. No Exception, so that nothing on the way takes it for its own."""


@dataclass(frozen=True)
class Bug:
    """What one input has brought to light. `where` is equal for inputs that fail at the same place."""

    target: str
    seed: int
    where: str
    text: str


@dataclass
class Report:
    """What was seen of one target. `slowest` and `largest` with the seed of that input."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)  # bytes of the process after that input
    bugs: list[Bug] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Another batch of the same target."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)
        known = {bug.where for bug in self.bugs}
        self.bugs += [bug for bug in other.bugs if bug.where not in known]

    def line(self) -> str:
        """For people."""
        return (
            f"{self.target:<13} {self.inputs:>8,} inputs {self.seconds:>8.1f} s"
            f"  slowest {self.slowest[0] * 1000:>6.1f} ms (seed {self.slowest[1]})"
            f"  largest {self.largest[0] / 2**20:>5.0f} MB  bugs {len(self.bugs)}"
        )


def run(shares: dict[str, range], jobs: int, limit: float = SECONDS) -> Iterator[Report]:
    """Feed every target its seeds, as many children at a time as *jobs*; a report for each batch.

    An input that takes more than *limit* seconds is a bug.
    """
    for name in shares:
        target.kind(name)  # imported once for all children
    waiting = [(name, seeds[at : at + BATCH]) for name, seeds in shares.items() for at in _starts(seeds)]
    waiting.reverse()
    children: dict[Connection, _Child] = {}
    while waiting or children:
        while waiting and len(children) < jobs:
            child = _Child(*waiting.pop(), limit)
            children[child.ear] = child
        for ear in cast("list[Connection]", connection.wait(list(children))):
            child = children.pop(ear)
            report, rest = child.end()
            if rest:
                waiting.append((child.name, rest))
            yield report


def replay(name: str, seed: int) -> Report:
    """One input, in this process."""
    return _feed(name, [seed], SECONDS, mmap.mmap(-1, 8))


def made(name: str, seed: int) -> Any:
    """The input of that seed."""
    with target.opened(name) as chosen:
        return chosen.make(target.seeded(name, seed))


def feed(name: str, given: Any) -> None:
    """One input that was kept. Raises what a run would call a bug."""
    with target.opened(name) as chosen:
        chosen.feed(given)


def _starts(seeds: range) -> range:
    return range(0, len(seeds), BATCH)


class _Child:
    """One process with one batch."""

    def __init__(self, name: str, seeds: range, limit: float) -> None:
        self.name = name
        self._seeds = seeds
        self._now = mmap.mmap(-1, 8)  # the seed that it is at, for when it cannot say so any more
        self._now[:8] = struct.pack("q", seeds[0])
        context = get_context("fork")
        self.ear, mouth = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_main, args=(name, seeds, limit, self._now, mouth), daemon=True
        )
        self._begun = time.monotonic()
        self._process.start()
        mouth.close()

    def end(self) -> tuple[Report, range]:
        """What it found, and the seeds that it did not come to."""
        try:
            told = json.loads(self.ear.recv_bytes())
            report = _report(told)
        except (EOFError, OSError):
            report = self._died()
        self._process.join()
        self.ear.close()
        return report, self._seeds[report.inputs :]

    def _died(self) -> Report:
        self._process.join()
        (seed,) = struct.unpack("q", self._now[:8])
        code = self._process.exitcode
        bug = Bug(self.name, seed, f"exit code {code}", f"the process ended with exit code {code}")
        done = self._seeds.index(seed) + 1
        return Report(self.name, done, time.monotonic() - self._begun, bugs=[bug])


def _report(told: dict[str, Any]) -> Report:
    found = Report(**told)
    found.bugs = [Bug(**bug) for bug in told["bugs"]]
    found.slowest = (told["slowest"][0], told["slowest"][1])
    found.largest = (told["largest"][0], told["largest"][1])
    return found


def _main(name: str, seeds: range, limit: float, now: mmap.mmap, mouth: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    report = _feed(name, seeds, limit, now)
    mouth.send_bytes(json.dumps(dataclasses.asdict(report)).encode())


def _feed(name: str, seeds: Iterable[int], limit: float, now: mmap.mmap) -> Report:
    warnings.simplefilter("error")
    signal.signal(signal.SIGALRM, _ring)
    report = Report(name)
    begun = time.monotonic()
    with target.opened(name) as chosen:
        for seed in seeds:
            now[:8] = struct.pack("q", seed)
            if _next(report, seed, chosen, limit):
                break  # the peak of a process never falls: the next child takes the rest
    report.seconds = time.monotonic() - begun
    return report


def _next(report: Report, seed: int, chosen: target.Target, limit: float) -> bool:
    """Whether the process has had enough."""
    given = chosen.make(target.seeded(report.target, seed))
    before = _memory()
    took, bug = _one(report.target, seed, chosen, given, limit)
    after = _memory()
    report.inputs += 1
    report.slowest = max(report.slowest, (took, seed))
    if after > report.largest[0]:
        report.largest = (after, seed)
    if after > MEMORY and (bug is None or bug.where == "slow"):  # what takes much takes long, too
        bug = Bug(report.target, seed, "memory", f"{before >> 20} MB before, {after >> 20} MB after")
    if bug is not None and bug.where not in {each.where for each in report.bugs}:
        report.bugs.append(bug)
    return after > MEMORY or len(report.bugs) >= _KEPT


def _one(name: str, seed: int, chosen: target.Target, given: Any, limit: float) -> tuple[float, Bug | None]:
    took = float("inf")
    for _ in range(1 + _AGAIN):
        begun = time.monotonic()
        signal.alarm(_STUCK)
        try:
            chosen.feed(given)
        except (Exception, StuckError) as error:  # noqa: BLE001 - whatever it may be
            return time.monotonic() - begun, Bug(name, seed, _where(error), _text(error))
        finally:
            signal.alarm(0)
        took = min(took, time.monotonic() - begun)
        if took <= limit:
            return took, None
        gc.collect()
    return took, Bug(name, seed, "slow", f"it took {took:.2f} s")


def _ring(*_: object) -> None:
    raise StuckError(f"it did not end in {_STUCK} s")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/ddplaunch/" in frame.filename] or frames
    last = ours[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.name}:{last.lineno}"


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-8))[-3000:]
