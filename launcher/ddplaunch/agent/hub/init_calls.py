"""Ranks that have just called init_process_group: when to compare their calls. Pure: time is an argument.

A node reports a rank's call, and once more when it has looked up the call's address. All reports are judged
together within seconds, long before init_process_group times out.
"""

from __future__ import annotations

from typing import Optional

SETTLE = 1.0
"""Seconds after the last report, for peers that call at the same time."""
LATEST = 3.0
"""Seconds after the first report, however many more come."""


class InitCalls:
    """`now` is the monotonic clock."""

    def __init__(self) -> None:
        self._first: Optional[float] = None
        self._last = 0.0

    def called(self, now: float) -> None:
        """Note a rank's call."""
        self._first = now if self._first is None else self._first
        self._last = now

    def due(self, now: float) -> bool:
        """Whether to compare the calls now; true once for all that have been reported."""
        if self._first is None or now < min(self._last + SETTLE, self._first + LATEST):
            return False
        self._first = None
        return True
