"""Reads what torchrun prints about its workers' exits, for workers whose exit was not seen. Pure."""

from __future__ import annotations

import re

_FAILURE = re.compile(
    r"^\s*rank\s*: (\d+) \(local_rank: (\d+)\)\s*$\s*^\s*exitcode\s*: (-?\d+) \(pid: (\d+)\)", re.MULTILINE
)


def exits(text: str) -> dict[int, tuple[int, int, int]]:
    """Return by global rank (local rank, pid, exit code or negative signal), of torchrun's failure report.

    torchrun's root cause is not read: it is the first in dictionary order within one second.
    """
    failures = _FAILURE.findall(text)
    return {int(rank): (int(local), int(pid), int(code)) for rank, local, code, pid in failures}
