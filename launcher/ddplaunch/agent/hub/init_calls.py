"""Ranks that have just called init_process_group: when to compare their calls. Pure: time is an argument.

A rank tells of its call, and again once its node has looked up where it leads. What all of them say together
is judged within seconds, long before anybody has waited in vain.
"""

from __future__ import annotations

from typing import Optional

SETTLE = 1.0
"""Seconds after a rank's word for those of its peers that call at the same time."""
LATEST = 3.0
"""Seconds after the first word, however many more come."""


class InitCalls:
    """`now` is the monotonic clock."""

    def __init__(self) -> None:
        self._first: Optional[float] = None
        self._last = 0.0

    def heard(self, now: float) -> None:
        """A rank has told of its call."""
        self._first = now if self._first is None else self._first
        self._last = now

    def due(self, now: float) -> bool:
        """Whether it is time to look; once for all that was heard."""
        if self._first is None or now < min(self._last + SETTLE, self._first + LATEST):
            return False
        self._first = None
        return True
