"""Unauthenticated connections: how many may wait, and which is dropped first.

When there are too many, the oldest one of the address that has the most is dropped. So a flood from one
address drops its own connections, and no other node's; and nodes behind one NAT address may still come all at
once.
"""

from __future__ import annotations

import threading
from typing import Generic, Optional, TypeVar

Guest = TypeVar("Guest")


class UnprovedConnections(Generic[Guest]):
    """The unauthenticated connections of a server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[Guest, None]] = {}  # by address, the oldest first
        self._count = 0

    def enter(self, address: str, guest: Guest, room: int) -> Optional[Guest]:
        """Add `guest`. Returns the one to drop for it; None while no more than `room` wait."""
        with self._lock:
            self._waiting.setdefault(address, {})[guest] = None
            self._count += 1
            if self._count <= room:
                return None
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            oldest = next(iter(self._waiting[most]))
            self._remove(most, oldest)
            return oldest

    def leave(self, address: str, guest: Guest) -> bool:
        """Remove a connection that has authenticated or closed; return whether it was still waiting."""
        with self._lock:
            return self._remove(address, guest)

    def guests(self) -> list[Guest]:
        with self._lock:
            return [guest for guests in self._waiting.values() for guest in guests]

    def _remove(self, address: str, guest: Guest) -> bool:
        guests = self._waiting.get(address, {})
        if guest not in guests:
            return False
        del guests[guest]
        if not guests:
            del self._waiting[address]
        self._count -= 1
        return True
