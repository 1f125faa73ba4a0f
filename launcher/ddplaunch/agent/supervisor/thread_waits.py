"""Tells by two looks which threads wait for a lock of their process, and which ask for the GIL in vain."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ddplaunch.agent.system import proc

APART = 0.1
"""Seconds between the looks, at least."""
_ASKS = 2
"""Wake-ups between the looks, at least, of a thread that asks for the GIL: Python does so every 5 ms, less
often on a busy machine. A thread that waits for a lock has none."""

Thread = tuple[int, int]
"""The numbers of a process and of its thread."""


class ThreadWaits:
    """Two looks at the futexes for which `threads` wait: one now, and one by `again`."""

    def __init__(self, threads: Iterable[Thread]) -> None:
        self.at = time.monotonic()
        self._first = {each: wait for each in threads if (wait := proc.thread_wait(*each)) is not None}
        self._second: dict[Thread, proc.ThreadWait] = {}

    @property
    def due(self) -> float:
        """Return the moment of time.monotonic() from which a second look may be taken."""
        return self.at + APART if self._first else self.at

    def again(self) -> None:
        """Look a second time."""
        looks = {each: proc.thread_wait(*each) for each in self._first}
        self._second = {each: wait for each, wait in looks.items() if wait is not None}

    def on_lock(self, thread: Thread) -> bool:
        """Whether it has not run between the looks, and only its own process can ever wake it."""
        wait = self._second.get(thread)
        return wait is not None and wait == self._first[thread] and wait.own and not wait.timed

    def asks(self, thread: Thread) -> bool:
        """Whether it waits a little, looks, and waits again, as a thread does that wants the GIL."""
        first, second = self._first.get(thread), self._second.get(thread)
        if first is None or second is None or not (first.own and first.timed and second.timed):
            return False
        return second.futex == first.futex and second.switches - first.switches >= _ASKS
