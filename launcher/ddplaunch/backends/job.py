"""Types that all backends share: a job's handle, its state, its end, and a choice of its output."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from ddplaunch.agent.contract import JobStatus, Verdict
from ddplaunch.errors import UsageError


@dataclass(frozen=True)
class Handle:
    """`target://path`: what `submit` prints and every other command takes."""

    target: str
    path: str

    def __str__(self) -> str:
        return f"{self.target}://{self.path}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Return the handle that `text` spells. Raises UsageError for any other text."""
        match = re.fullmatch(r"([a-z]+)://([^\s/][^\s]*)", text)
        if match is None:
            target = "slurm" if text.isdecimal() else "local"
            guess = f"{target}://{text}" if re.fullmatch(r"[\w.-]+(/\d+)?", text) else "local://digits"
            raise UsageError(
                f"{text!r} is not a job handle",
                hint=f"a handle looks like {guess}; `ddplaunch submit` prints it, and `ddplaunch list` shows "
                "all",
            )
        return cls(match[1], match[2])


PROCESS: Final = "pid"
"""The target of a handle that names a process of this machine, for a job that ddplaunch did not start."""


class Known(NamedTuple):
    """A job that is known here without asking its scheduler."""

    handle: Handle
    about: str | Callable[[], str]  # for completion: its state, or its name; a function where it reads files
    name: str  # in the job file; empty if it is not known
    at: float  # when it was submitted, in seconds since the epoch


class State(StrEnum):
    """The states of a job. CANCELLED: by its user. LOST: it is gone, but not because of `ddplaunch
    cancel`.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class Earlier(NamedTuple):
    """An attempt before the present one."""

    number: int
    run: Path | None  # the folder that it left; None: it left none
    status: JobStatus | None  # the last one of its hub; None: it left none
    why_none: str = "it left no result"  # why there is no status, in one sentence


@dataclass(frozen=True)
class Job:
    """One submission as its backend sees it now. Times are wall-clock seconds since the epoch."""

    handle: Handle
    state: State
    submitted: float
    name: str  # in the job file, or as its scheduler calls it; empty if neither is known
    ended: float | None = None
    exit_code: int | None = None  # of contract.Exit; None while it runs, or if it left none
    detail: str = ""  # why it is pending or lost, in one sentence
    hint: str = ""  # what to do about that
    never_starts: bool = False  # it is pending, and waiting will never cure the reason
    status: JobStatus | None = None  # from its hub; None before the hub is up
    lingers: str = ""  # what its scheduler still holds after it has ended, in one sentence
    verdicts: tuple[Verdict, ...] = ()  # from its backend, if the job's hub left none
    sweep: Mapping[str, str] = field(default_factory=dict)  # its own values in a sweep, as text by key
    restarts: int = 0  # the attempts before this one, as its scheduler counts them
    earlier: tuple[Earlier, ...] = ()  # the attempts before this one that are known, the oldest first

    @property
    def attempt(self) -> int:
        """Return the number of the present attempt, or of the last; 0 is the first."""
        if self.status is not None:
            return self.status.attempt
        return max(self.restarts, self.earlier[-1].number + 1 if self.earlier else 0)

    @property
    def gate_passed(self) -> bool:
        """Whether its ranks were started, because its hub's status says so or because a verdict is about the
        run.
        """
        status = self.status
        verdicts = [*(status.verdicts if status else ()), *self.verdicts]
        return (status is not None and status.gate_passed) or any(each.where == "run" for each in verdicts)


SILENT_AFTER_HERE, SILENT_AFTER_AFAR = 25.0, 90.0
"""Seconds without a new status after which a hub counts as silent; it writes one every ten seconds. On a
cluster, a shared file system may show old files for a minute, and clocks may differ."""
LINGER = 4.0
"""Seconds after the hub's exit code within which a scheduler ends most jobs, and knows more about some of
them."""
BY_CANCEL = "by `ddplaunch cancel`"
STOPPED_OUTSIDE = "stopped from outside, not by `ddplaunch cancel`"


def with_silence(job: Job, patience: float, now: float) -> Job:
    """Return the job. If its hub has been silent for longer than `patience` seconds, its detail says so."""
    status = job.status
    if job.state is not State.RUNNING or status is None or status.exit_code is not None:
        return job
    if now - status.updated <= patience:
        return job
    since = time.strftime("%H:%M:%S", time.localtime(status.updated))
    silence = f"the hub has not been heard since {since}"
    hint = (
        "this may be temporary, for example on a busy machine; until the hub is heard again, each node "
        "watches its own ranks and ends them if they make no progress for `watchdog.kill_after`"
    )
    if job.detail:  # the scheduler knows why: no node watches a suspended job
        return replace(job, detail=f"{job.detail}; {silence}")
    return replace(job, detail=silence, hint=job.hint or hint)


class Outcome(NamedTuple):
    """How a job ended. `ended`: seconds since the epoch, or None if the scheduler does not say."""

    state: State
    exit_code: int | None
    detail: str = ""
    ended: float | None = None


@dataclass(frozen=True)
class Remains:
    """The paths or objects that a job has left and that `delete` removes; the files and bytes in them."""

    parts: tuple[str, ...] = ()
    files: int = 0
    size: int = 0
    outputs: int = 0  # of the files, how many the ranks have written into the job's folder
    outputs_size: int = 0
    stays: tuple[str, ...] = ()  # what is left but is not removed, one sentence each

    def __add__(self, other: Remains) -> Remains:
        return Remains(
            self.parts + other.parts,
            self.files + other.files,
            self.size + other.size,
            self.outputs + other.outputs,
            self.outputs_size + other.outputs_size,
            self.stays + other.stays,
        )


@dataclass(frozen=True)
class Selection:
    """A choice of lines from a job's output. A field that is None selects all."""

    nodes: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    tail: int | None = None  # only the last so many lines, before following


EVERYTHING = Selection()
