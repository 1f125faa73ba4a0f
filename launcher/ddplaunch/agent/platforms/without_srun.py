"""Stands in for `step_tasks` in pods, where no srun starts the nodes: it knows of no task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Ended:
    """A task that has ended: there is none."""


class StepTasks:
    """The tasks of no step."""

    def __init__(self, names: Sequence[str]) -> None:
        """Know nothing of the nodes."""

    def add(self, lines: Iterable[bytes], now: float) -> None:
        """Read nothing."""

    def ended(self, _now: float) -> list[Ended]:
        """Return no task."""
        return []
