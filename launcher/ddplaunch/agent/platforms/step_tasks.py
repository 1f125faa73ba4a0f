"""Reads srun's messages about a step's tasks, one per node: which ended badly, and why.

A task may end before it is ours: a prolog fails, a disk is full, there is no Python. Nothing is heard of its
node then, while srun tells of its end at once. Pure; times are the caller's clock.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit

SETTLE = 1.0
"""Seconds from srun's word to our belief in it: the reason may be written after the end."""
_ENDED = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): (.+)")
_FAILED = re.compile(r"srun: error: Task launch for \S+ failed on node ([^\s:]+)(: .+)")
_OVER = re.compile(r"Job step aborted|CANCELLED AT")
_DAEMON = re.compile(r"(?:\d+: )?slurmstepd-(\S+?): (?:error: )?(.*)")
_LABELLED = re.compile(r"(\d+): (.*)")
_TOLD_TO_STOP = f"Exited with exit code {int(Exit.STOPPED)}"
_OURS = "ddplaunch-node "
"""What the batch script itself has a node say."""
_KEPT = 4
UNLAUNCHED = "Task launch failed"
"""How srun's word begins of a task that it could not start."""


class Ended(NamedTuple):
    """A node's task that has ended, or could not be launched, and what is known of why."""

    node: int
    how: str  # srun's word: "Exited with exit code 1"
    said: Sequence[str] = ()  # the last lines of it, or of Slurm's daemon there
    by: str = "srun"  # who says how

    @property
    def launched(self) -> bool:
        """Whether it has run at all."""
        return not self.how.startswith(UNLAUNCHED)


class StepTasks:
    """`names` of the job's nodes, which are those of its tasks, in order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._ended: dict[int, tuple[float, str]] = {}
        self._said: dict[int, deque[str]] = {}
        self._over = False  # the step is ended as a whole, which is no task's doing

    def hear(self, lines: Iterable[bytes], now: float) -> None:
        """Lines that srun has written, with or without labels."""
        for line in lines:
            self._hear(line.decode(errors="replace").rstrip(), now)

    def ended(self, now: float) -> list[Ended]:
        """Return whoever ended badly before the whole step did, in node order."""
        return [
            Ended(node, how, self._words(node))
            for node, (at, how) in sorted(self._ended.items())
            if now - at >= SETTLE
        ]

    def _hear(self, line: str, now: float) -> None:
        self._over = self._over or _OVER.search(line) is not None
        ended, unlaunched = _ENDED.match(line), _FAILED.match(line)
        if ended is not None and ended[2] != _TOLD_TO_STOP:
            self._end(_numbers(ended[1]), ended[2], now)
        elif unlaunched is not None:
            self._end(self._numbers_of(unlaunched[1]), UNLAUNCHED + unlaunched[2], now)
        elif not line.startswith("srun: "):
            self._keep(line)

    def _end(self, nodes: Iterable[int], how: str, now: float) -> None:
        for node in nodes:
            if not self._over and 0 <= node < len(self._names):
                self._ended.setdefault(node, (now, how))

    def _keep(self, line: str) -> None:
        daemon, labelled = _DAEMON.match(line), _LABELLED.match(line)
        if daemon is not None:
            nodes, text = self._numbers_of(daemon[1]), daemon[2]
        elif labelled is not None:
            nodes, text = [int(labelled[1])], labelled[2]
        else:
            nodes, text = [-1], line  # somebody's
        if text.startswith(_OURS):
            return
        for node in nodes:
            self._said.setdefault(node, deque(maxlen=_KEPT)).append(text)

    def _words(self, node: int) -> list[str]:
        """Return the node's lines; lines without a label are its own when no other node has ended."""
        anybody = self._said.get(-1, ()) if len(self._ended) == 1 else ()
        return list(self._said.get(node) or anybody)

    def _numbers_of(self, name: str) -> list[int]:
        return [number for number, each in enumerate(self._names) if each == name]


def _numbers(text: str) -> list[int]:
    """Return the numbers in '0', '1-3' or '0,2-3'."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last if last.isdecimal() else first) + 1)
    return found
