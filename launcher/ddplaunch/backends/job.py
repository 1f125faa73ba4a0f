"""What every backend says of a job, in the same words: its handle, how it stands, which lines are wanted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ddplaunch.agent.contract import JobStatus, Verdict
from ddplaunch.errors import UsageError


@dataclass(frozen=True)
class Handle:
    """`target://path`: what `submit` prints, and what every other command takes."""

    target: str
    path: str

    def __str__(self) -> str:
        return f"{self.target}://{self.path}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Raises UsageError when `text` has not the form of a handle."""
        match = re.fullmatch(r"([a-z]+)://([^\s/][^\s]*)", text)
        if match is None:
            target = "slurm" if text.isdigit() else "local"
            guess = f"{target}://{text}" if re.fullmatch(r"[\w.-]+(/\d+)?", text) else "local://digits"
            raise UsageError(
                f"{text!r} is no handle of a job",
                hint=f"a handle looks like {guess}; `ddplaunch submit` prints it, `ddplaunch list` shows all",
            )
        return cls(match[1], match[2])


class State(StrEnum):
    """How a job stands. CANCELLED: by its user. LOST: it is gone, and nobody here has asked for that."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True)
class Job:
    """One submission, as its backend sees it now. Times are wall-clock seconds since the epoch."""

    handle: Handle
    state: State
    submitted: float
    name: str  # of the job file, or as its scheduler calls it; empty when nobody knows any more
    ended: float | None = None
    exit_code: int | None = None  # contract.Exit, once it has ended and said so
    detail: str = ""  # why it is pending or lost, in one sentence
    hint: str = ""  # what to do about that
    status: JobStatus | None = None  # what its hub says; None before the hub stands
    verdicts: tuple[Verdict, ...] = ()  # what its backend knows, for when its hub could not speak


@dataclass(frozen=True)
class Selection:
    """Which lines of a job's output are wanted. None: all."""

    nodes: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    tail: int | None = None  # only the last so many, before following


EVERYTHING = Selection()
