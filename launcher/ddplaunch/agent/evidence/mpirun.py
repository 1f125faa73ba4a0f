"""Reads what mpirun prints about its ranks' exits, for ranks whose exit was not seen. Pure."""

from __future__ import annotations

import re

_CODE = re.compile(r"Process name: \[.*,(\d+)\]\s*\n\s*Exit code:\s+(\d+)")
_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")


def exits(text: str) -> dict[int, int]:
    """World rank -> exit code, negative for a signal, as Open MPI tells it of the first to end badly."""
    found = {int(rank): int(code) for rank, code in _CODE.findall(text)}
    found.update({int(rank): -int(number) for rank, number in _SIGNAL.findall(text)})
    return found
