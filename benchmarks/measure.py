"""Measuring whole processes so that the ratio can be trusted: interleaved runs, pair by pair, medians."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


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


def seconds(command: Sequence[str]) -> float:
    """Wall-clock seconds of one run. Raises when it fails: a fast failure is no measurement."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - start


def ratio(name: str, ours: Sequence[str], theirs: Sequence[str], limit: float, runs: int) -> Line:
    """The median of ours / theirs over `runs` pairs, after one pair that only warms the caches."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(runs + 1)][1:]
    median = statistics.median(a / b for a, b in pairs)
    detail = " against ".join(
        f"{statistics.median(column) * 1000:.0f} ms" for column in zip(*pairs, strict=True)
    )
    return Line(name, median, limit, detail=detail)
