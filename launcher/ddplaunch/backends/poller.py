"""Keeps what is known of a job up to date: its scheduler, which may be slow, is queried in a thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from ddplaunch.errors import ClusterError

_GROWTH = 1.25


class Poller(ABC):
    """Queries a scheduler, with pauses that grow from `first` to `longest` seconds while nothing changes."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._pause = first
        self._next = time.monotonic() + first
        self._thread: threading.Thread | None = None
        self.error: ClusterError | None = None

    @abstractmethod
    def query(self) -> None:
        """Query the scheduler and keep the result, or set `error`. One thread at a time calls this."""

    def poll_soon(self) -> None:
        """Return to the shortest pause: something has changed."""
        self._pause = self._first

    def poll_later(self) -> None:
        """Lengthen the pause: nothing has changed."""
        self._pause = min(_GROWTH * self._pause, self._longest)

    def wake(self) -> None:
        """Let the next `refresh` query the scheduler, however long the pause."""
        self._next = min(self._next, time.monotonic())
        self.poll_soon()

    def refresh(self, *, fresh: bool, ended: bool) -> None:
        """Start a query when the pause is over; with `fresh`, query now and wait. Raises ClusterError."""
        if fresh or (self._thread is not None and not self._thread.is_alive()):
            self.join()
        if fresh:
            self._query()
        elif not ended and self._thread is None and time.monotonic() >= self._next:
            thread = threading.Thread(target=self._query, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user may start no more (ulimit -u)
                self._query()
            else:
                self._thread = thread
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait for the query that is under way, if there is one."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _query(self) -> None:
        self.query()
        self._next = time.monotonic() + self._pause
