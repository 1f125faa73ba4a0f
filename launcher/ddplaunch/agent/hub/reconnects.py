"""Nodes that were connected to an earlier hub, which this one replaces.

They connect again within seconds, and report what has happened meanwhile. Until then the hub judges nothing,
for a verdict on half of the job may name the wrong rank. Pure: time is an argument.
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
        """Wait for these nodes, which were connected."""
        self.missing = set(nodes)
        self._until = now + PATIENCE

    def is_back(self, node: int) -> None:
        self.missing.discard(node)

    def waits(self, now: float) -> bool:
        """Whether to wait for the nodes in `missing`."""
        return bool(self.missing) and now < self._until

    def give_up(self) -> set[int]:
        """Stop waiting. Returns the nodes that did not come back in time."""
        late, self.missing = self.missing, set()
        return late
