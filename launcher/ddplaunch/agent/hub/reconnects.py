"""Nodes that were connected to an earlier hub, which this one replaces.

They call within seconds, and say what has happened meanwhile. Until then nothing is judged, for a verdict on
half of the job may name an innocent. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable

PATIENCE = 35.0
"""Seconds for all to come back: a supervisor pauses up to thirty between two calls."""


class Reconnects:
    """`now` is the monotonic clock."""

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self._until = 0.0

    def expect(self, nodes: Iterable[int], now: float) -> None:
        """These nodes were here."""
        self.missing = set(nodes)
        self._until = now + PATIENCE

    def is_back(self, node: int) -> None:
        self.missing.discard(node)

    def waits(self, now: float) -> bool:
        """Whether to wait for who is `missing`."""
        return bool(self.missing) and now < self._until

    def give_up(self) -> set[int]:
        """The nodes that did not come back in time. The hub stops waiting for them."""
        late, self.missing = self.missing, set()
        return late
