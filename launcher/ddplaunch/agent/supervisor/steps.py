"""Measures how long a step of one rank takes, by its counters. Pure.

How many collectives a step has is read from torch's flight recorder, after the first steps, again after a
minute, and then after four times as long each: the counters of each second cost the rank nothing more.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Optional

from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.evidence import flight

_CHANGES = 60
_FEWEST = 10
"""Changes of the counters before the recorder is read: a program's first steps differ from all others."""
_PAUSE, _LONGER = 60.0, 4
_STEPS = 2
_LATE = 3.0
"""Steps without a collective, of a second at least, after which the pace is no longer known."""


class Steps:
    """Takes the hook's answers of one rank."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, dict[str, int]]] = deque(maxlen=_CHANGES)  # called, by backend
        self._backend = ""
        self._per_step = 0.0
        self._due = 0.0
        self._pause = _PAUSE

    def claim_read(self, now: float) -> bool:
        """Return whether the recorder is to be read now. Then it is not again before a pause has passed.

        Also where no answer comes: on a busy machine the next one would be as late.
        """
        if len(self._changes) < _FEWEST or now < self._due:
            return False
        self._due = now + self._pause
        return True

    def take(self, at: float, answer: Optional[dict[str, Any]]) -> None:
        dumps: dict[str, dict[str, Any]] = (answer or {}).get("recorders") or {}
        called = {
            name: sum(each for each, _ in flight.counters(dump, as_brief=True).values())
            for name, dump in dumps.items()
        }
        before = self._changes[-1][1] if self._changes else {}
        if (answer or {}).get("is") == "steps":
            self._learn(at, dumps)
        if dumps and any(called.get(name, 0) < number for name, number in before.items()):
            self._changes.clear()  # it has made its groups again
        if called != before and any(called.values()):
            self._changes.append((at, called))

    def _learn(self, at: float, dumps: dict[str, dict[str, Any]]) -> None:
        self._due, self._pause = at + self._pause, _LONGER * self._pause
        known = [(flight.per_step(d), name) for name, d in dumps.items() if pace.steady(flight.step_times(d))]
        while not self._per_step and len(self._changes) > 1:
            self._changes.popleft()  # the first steps are no measure
        self._per_step, self._backend = max(known, default=(0.0, ""))

    def seconds(self, now: float) -> Optional[float]:
        """Return the mean step of about the last minute, in seconds; None where it is not known."""
        if not self._per_step or len(self._changes) < _STEPS:
            return None
        (begin, first), (end, last) = self._changes[0], self._changes[-1]
        steps = (last.get(self._backend, 0) - first.get(self._backend, 0)) / self._per_step
        if steps < _STEPS or now - end > _LATE * max(1.0, (end - begin) / steps):
            return None
        return round((end - begin) / steps, 4)
