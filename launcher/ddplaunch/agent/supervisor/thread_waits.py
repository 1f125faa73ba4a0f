"""Tells by several looks which threads wait for a lock of their process, and which ask for the GIL."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Optional

from ddplaunch.agent.system import proc

_APART = 0.1
"""Seconds between the first and the last look, at least."""
_LONGEST = 0.5
"""Seconds for threads that may ask for the GIL: a look may find them awake, most often on a busy machine."""
_ASKS = 2
"""Wake-ups between two looks, at least, of a thread that asks for the GIL: Python does so every 5 ms, less
often on a busy machine. A thread that waits for a lock has none."""

Thread = tuple[int, int]
"""The numbers of a process and of its thread."""


class ThreadWaits:
    """Looks at the futexes for which `threads` and `silent` ones wait: one now, and one with each `again`.

    The silent are threads of hooks that owe an answer: they may ask for the GIL.
    """

    def __init__(self, threads: Iterable[Thread], silent: Iterable[Thread] = ()) -> None:
        self._at = time.monotonic()
        self._again_at: Optional[float] = None
        self._first = {each: wait for each in threads if (wait := proc.thread_wait(*each)) is not None}
        self._last: dict[Thread, proc.ThreadWait] = {}
        self._undecided = set(silent)
        self._silent: dict[Thread, proc.ThreadWait] = {}
        self._asking: set[Thread] = set()
        self._look_at_silent()

    @property
    def open(self) -> bool:
        """Whether another look can tell more: the second does, however late it comes."""
        if self._again_at is None:
            return bool(self._first or self._undecided)
        now = time.monotonic()
        return now - self._at < _APART or (bool(self._undecided) and now - self._again_at < _LONGEST)

    def again(self) -> None:
        """Look another time."""
        if self._again_at is None:
            self._again_at = time.monotonic()
        looks = {each: proc.thread_wait(*each) for each in self._first}
        self._last = {each: wait for each, wait in looks.items() if wait is not None}
        self._look_at_silent()

    def on_lock(self, thread: Thread) -> bool:
        """Whether it has not run between the looks, and only its own process can ever wake it."""
        wait = self._last.get(thread)
        return wait is not None and wait == self._first[thread] and wait.own and not wait.timed

    def asks(self, thread: Thread) -> bool:
        """Whether it waits a little, looks, and waits again, as a thread does that wants the GIL."""
        return thread in self._asking

    def _look_at_silent(self) -> None:
        for each in sorted(self._undecided):
            wait = proc.thread_wait(*each)
            if wait is None or not (wait.own and wait.timed):
                continue
            first = self._silent.setdefault(each, wait)
            if first.futex != wait.futex:
                self._silent[each] = wait
            elif wait.switches - first.switches >= _ASKS:
                self._asking.add(each)
        self._undecided -= self._asking
