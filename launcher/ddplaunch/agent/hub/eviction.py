"""Nodes that are being stopped from outside: some of the job's, or all. Pure.

A pod that is deleted, drained or preempted gets SIGTERM; the other pods get no message. A job that is
cancelled gets SIGTERM on all nodes at nearly the same time.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Optional

BY_ENDING = frozenset(["node-evicted", "rank-killed", "launch-failed", "network-lost", "unknown"])
"""What ranks and nodes look like that are being ended from outside."""
TOGETHER = 5.0
"""Seconds in which SIGTERM reaches all nodes of a job that is ended as a whole, on busy machines too."""


class Eviction:
    """The nodes that are being stopped. Times are the monotonic clock."""

    def __init__(self, members: Set[int]) -> None:
        self._members = members  # the job's nodes; the caller's own set, which changes
        self._stopping: dict[int, str] = {}  # node -> by what
        self._ended: set[int] = set()
        self._since: Optional[float] = None
        self.noticed = False  # the others have a notice of it

    def stopping(self, node: int, how: str, now: float) -> bool:
        """Note that `node` is being stopped. Returns whether it is the first."""
        first = self._since is None
        self._since = now if self._since is None else self._since
        self._stopping.setdefault(node, how)
        return first

    def ended(self, node: int) -> None:
        """Note that `node` has ended."""
        self._ended.add(node)

    @property
    def begun(self) -> bool:
        """Whether any node is being stopped."""
        return self._since is not None

    @property
    def nodes(self) -> list[int]:
        """Return the nodes that got SIGTERM while others did not; empty when all got it, or none."""
        return sorted(self._stopping) if len(self._stopping) < len(self._members) else []

    @property
    def how(self) -> str:
        """Return the signal or command that stopped the first of them."""
        return next(iter(self._stopping.values()), "")

    def is_plain(self, now: float) -> bool:
        """Whether it is known by now which nodes are being stopped: all, or those noted so far."""
        known = self._members <= self._stopping.keys() | self._ended
        return self._since is None or known or now >= self._since + TOGETHER

    def is_due(self, now: float) -> bool:
        """Whether the others need a notice."""
        return bool(self.nodes) and not self.noticed and self.is_plain(now)
