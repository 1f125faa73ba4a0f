"""Nodes that their owner told to stop: some of the job's, or all. Pure.

A pod that is deleted, drained or preempted gets SIGTERM, and nobody tells the others. A job that is cancelled
gets it on all nodes, at nearly the same time.
"""

from __future__ import annotations

from typing import Optional

BY_ENDING = frozenset(["node-evicted", "rank-killed", "launch-failed", "network-lost", "unknown"])
"""What ranks and nodes look like that are being ended from outside."""
TOGETHER = 5.0
"""Seconds in which all nodes of a job that is ended as a whole are told so, on busy machines too."""


class Eviction:
    """Times are the monotonic clock."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._told: dict[int, str] = {}  # node -> by what
        self._ended: set[int] = set()
        self._since: Optional[float] = None
        self.noticed = False  # it was told to the others

    def told(self, node: int, how: str, now: float) -> bool:
        """`node` was told to stop. Whether it is the first."""
        first = self._since is None
        self._since = now if self._since is None else self._since
        self._told.setdefault(node, how)
        return first

    def ended(self, node: int) -> None:
        """`node` has nothing left to be told."""
        self._ended.add(node)

    @property
    def begun(self) -> bool:
        """Whether any node was told."""
        return self._since is not None

    @property
    def nodes(self) -> list[int]:
        """Return the nodes that got SIGTERM while others did not; empty when all got it, or none."""
        return sorted(self._told) if len(self._told) < self._nodes else []

    @property
    def how(self) -> str:
        """Return the signal or command that told the first of them to stop."""
        return next(iter(self._told.values()), "")

    def is_plain(self, now: float) -> bool:
        """Whether it is known by now who is meant: all nodes, or those that were told so far."""
        known = len(self._told.keys() | self._ended) == self._nodes
        return self._since is None or known or now >= self._since + TOGETHER

    def is_due(self, now: float) -> bool:
        """Whether there is something to tell the others."""
        return bool(self.nodes) and not self.noticed and self.is_plain(now)
