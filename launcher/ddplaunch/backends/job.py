"""Types that all backends share: a job's handle, its state, and the lines of output that are wanted."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
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
            target = "slurm" if text.isdecimal() else "local"
            guess = f"{target}://{text}" if re.fullmatch(r"[\w.-]+(/\d+)?", text) else "local://digits"
            raise UsageError(
                f"{text!r} is not a job handle",
                hint=f"a handle looks like {guess}; `ddplaunch submit` prints it, `ddplaunch list` shows all",
            )
        return cls(match[1], match[2])


class State(StrEnum):
    """States of a job. CANCELLED: by its user. LOST: it is gone, and nobody here has asked for that."""

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
    lingers: str = ""  # what of an ended job its scheduler still holds, in one sentence
    verdicts: tuple[Verdict, ...] = ()  # what its backend knows, for when its hub could not speak

    @property
    def gate_passed(self) -> bool:
        """Whether the gate had let its ranks start, by its hub's word or by where a verdict was found."""
        told = self.status
        known = [*(told.verdicts if told else ()), *self.verdicts]
        return (told is not None and told.gate_passed) or any(each.where == "run" for each in known)


HEARD_HERE, HEARD_AFAR = 25.0, 90.0
"""Seconds without a heartbeat after which a hub counts as silent: of this machine, and where a shared file
system may show old files for a minute, or clocks may differ. A hub that lives writes every ten."""


def with_silence(job: Job, patience: float, now: float) -> Job:
    """Return the job, with the silence of its hub as its detail once that lasts longer than `patience`."""
    status = job.status
    if job.state is not State.RUNNING or status is None or status.exit_code is not None:
        return job
    if now - status.updated <= patience:
        return job
    since = time.strftime("%H:%M:%S", time.localtime(status.updated))
    silence = f"the hub does not answer since {since}"
    hint = "each node now watches its own ranks, and ends them when nothing moves for `kill_after`"
    if job.detail:  # the scheduler knows why: a job that is suspended has no node that watches
        return replace(job, detail=f"{job.detail}; {silence}")
    return replace(job, detail=silence, hint=job.hint or hint)


@dataclass(frozen=True)
class Selection:
    """Choice of lines of a job's output. None: all."""

    nodes: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    tail: int | None = None  # only the last so many, before following


EVERYTHING = Selection()
