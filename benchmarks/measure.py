"""Ratios of the CPU time of whole processes: the median over pairs of alternating runs."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Python may keep what it compiles, as it does for a user; without that, each run compiles every module."""


@dataclass(frozen=True)
class Line:
    """One row of the table: what was measured, the figure, and the most it may be."""

    name: str
    value: float
    limit: float
    unit: str = "x"
    detail: str = ""

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.kept else "OVER"
        figure = f"{self.value:8.3f}{self.unit:<3} limit {self.limit:g}{self.unit}"
        return f"{mark} {self.name:<52} {figure}  {self.detail}"


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
