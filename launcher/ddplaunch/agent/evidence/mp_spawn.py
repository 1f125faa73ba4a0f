"""Reads what torch's mp.spawn prints about its children's exits, for ranks whose exit was not seen. Pure."""

from __future__ import annotations

import re
import signal

_EXIT = re.compile(r"ProcessExitedException: process (\d+) terminated with (?:signal (\w+)|exit code (\d+))")


def exits(text: str) -> dict[int, int]:
    """Return exit codes by the child's index, negative for a signal: mp.spawn reports the first bad end."""
    codes = {}
    for index, name, code in _EXIT.findall(text):
        number = -getattr(signal, name, 0) if name else int(code)
        if number:
            codes[int(index)] = number
    return codes
