"""Keeps what is known about a job up to date. Its scheduler may be slow, so a thread asks it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from ddplaunch.errors import ClusterError

_GROWTH = 1.25


class Poller(ABC):
    """Asks a scheduler, with pauses that grow from `first` to `longest` seconds while nothing changes."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._pause = first
        self._next = time.monotonic() + first
        self._thread: threading.Thread | None = None
        self.error: ClusterError | None = None

    @abstractmethod
    def query(self) -> None:
        """Ask the scheduler and keep the result, or set `error`. Only one thread at a time calls this."""

    def poll_soon(self) -> None:
        """Go back to the shortest pause, because something has changed."""
        self._pause = self._first

    def poll_later(self) -> None:
        """Make the pause longer, because nothing has changed."""
        self._pause = min(_GROWTH * self._pause, self._longest)

    def wake(self) -> None:
        """Let the next `refresh` ask the scheduler, however long the pause is."""
        self._next = min(self._next, time.monotonic())
        self.poll_soon()

    def refresh(self, *, fresh: bool, ended: bool) -> None:
        """Start a query if the pause is over; with `fresh`, ask now and wait. Raises ClusterError."""
        if fresh or (self._thread is not None and not self._thread.is_alive()):
            self.join()
        if fresh:
            self._query()
        elif not ended and self._thread is None and time.monotonic() >= self._next:
            thread = threading.Thread(target=self._query, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user may start no more threads (ulimit -u)
                self._query()
            else:
                self._thread = thread
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait for the query that is under way, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _query(self) -> None:
        self.query()
        self._next = time.monotonic() + self._pause
