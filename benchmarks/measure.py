"""Ratios of the CPU time of whole processes: the median over pairs of alternating runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Python may keep what it compiles, as it does for a user; without that, each run compiles every module."""


_TIMES = ("s", "ms", "us", "%")
"""Units of figures that depend on the speed of the machine; `%`: of a core."""
_LOOP = 500_000
_LOOP_SECONDS = 0.013
"""What an empty loop of _LOOP rounds takes on the machine whose figures are the limits."""


def slowness() -> float:
    """Return how many times slower Python runs here, now, than on the machine of the limits; at least 1.

    Shared machines change their speed several times over from day to day.
    """
    return max(1.0, min(_loop_seconds() for _ in range(3)) / _LOOP_SECONDS)


def _loop_seconds() -> float:
    begun, total = time.process_time(), 0
    for number in range(_LOOP):
        total += number
    return time.process_time() - begun


@dataclass(frozen=True)
class Line:
    """One row of the table: what was measured, the figure, and the most it may be."""

    name: str
    value: float
    limit: float
    unit: str = "x"
    detail: str = ""
    slow: float = field(default_factory=slowness)  # when it was measured

    @property
    def most(self) -> float:
        """Return the limit for this machine."""
        return self.limit * self.slow if self.unit.strip() in _TIMES else self.limit

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limit."""
        return self.value <= self.most

    def __str__(self) -> str:
        mark = "ok  " if self.kept else "OVER"
        figure = f"{self.value:8.3f}{self.unit:<3} limit {self.limit:g}{self.unit}"
        times = f" x {self.slow:.1f}, as Python is slower here" if self.most > 1.05 * self.limit else ""
        return f"{mark} {self.name:<52} {figure}{times}  {self.detail}"


def cpu_seconds(command: Sequence[str], tolerated: Sequence[int] = (0,)) -> float:
    """Return the user and system time of one run, in seconds: other processes add nothing to it.

    Raises CalledProcessError for an exit code that is not `tolerated`: a fast failure is no measurement.
    """
    process = subprocess.Popen(command, env=_ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode not in tolerated:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=errors)
    return usage.ru_utime + usage.ru_stime


def ratio(name: str, ours: Sequence[str], theirs: Sequence[str], limit: float, runs: int) -> Line:
    """Return the median of ours / theirs over `runs` alternating pairs; a first pair fills the caches."""
    pairs = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(runs + 1)][1:]
    median = statistics.median(a / b for a, b in pairs)
    detail = " against ".join(
        f"{statistics.median(column) * 1000:.0f} ms" for column in zip(*pairs, strict=True)
    )
    return Line(name, median, limit, detail=detail)
