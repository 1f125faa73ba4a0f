"""A job that is looked at again and again, while its scheduler, which may be slow, is asked beside that."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from ddplaunch.errors import ClusterError

_GROWTH = 1.25


class Watched(ABC):
    """Times to look at a job anew. Pauses in seconds grow from `first` to `longest` by each `later`."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._pause = first
        self._next = time.monotonic() + first
        self._asking: threading.Thread | None = None
        self.error: ClusterError | None = None

    @abstractmethod
    def ask(self) -> None:
        """Look, and keep what is seen; `error` is what whoever looks next is told. One thread at a time."""

    def soon(self) -> None:
        """Something has happened, and more may."""
        self._pause = self._first

    def later(self) -> None:
        """Nothing has happened."""
        self._pause = min(_GROWTH * self._pause, self._longest)

    def hurry(self) -> None:
        """Do not let the next look wait."""
        self._next = min(self._next, time.monotonic())
        self.soon()

    def look(self, *, fresh: bool, ended: bool) -> None:
        """Ask when it is time, without waiting for the answer; with `fresh`, now. Raises ClusterError."""
        if fresh or (self._asking is not None and not self._asking.is_alive()):
            self.join()
        if fresh:
            self._ask()
        elif not ended and self._asking is None and time.monotonic() >= self._next:
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        if self.error is not None:
            raise self.error

    def join(self) -> None:
        """Wait for the look that is under way, if one is."""
        if self._asking is not None:
            self._asking.join()
            self._asking = None

    def _ask(self) -> None:
        self.ask()
        self._next = time.monotonic() + self._pause
