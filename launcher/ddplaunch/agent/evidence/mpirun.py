"""Reads what mpirun prints about its ranks' exits, for ranks whose exit was not seen. Pure."""

from __future__ import annotations

import re

_CODE = re.compile(r"Process name: \[.*,(\d+)\]\s*\n\s*Exit code:\s+(\d+)")
_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")


def exits(text: str) -> dict[int, int]:
    """Return exit codes by world rank, negative for a signal: Open MPI reports the first to end badly."""
    codes = {int(rank): int(code) for rank, code in _CODE.findall(text)}
    codes.update({int(rank): -int(number) for rank, number in _SIGNAL.findall(text)})
    return codes
