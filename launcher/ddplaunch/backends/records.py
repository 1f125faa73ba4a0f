"""Keeps what a scheduler forgets of a job: how it ended. Each backend adds what names its jobs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Self, TypeVar

from ddplaunch.agent.contract import Verdict
from ddplaunch.backends import files
from ddplaunch.backends.job import Job, Outcome, State

KEPT = 90 * 86400.0
"""Seconds for which a submission is remembered."""


@dataclass(frozen=True, kw_only=True)
class EndRecord:
    """The end of a job, as its record keeps it. `state` "": it has not ended."""

    state: str = ""
    exit_code: int | None = None
    ended: float | None = None
    detail: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    def with_end(self, job: Job) -> Self:
        """Return this record with the end of `job`."""
        return dataclasses.replace(
            self,
            state=str(job.state),
            exit_code=job.exit_code,
            ended=job.ended,
            detail=job.detail,
            verdicts=list(job.verdicts),
        )

    def without_end(self) -> Self:
        """Return this record as that of a job that goes on."""
        return dataclasses.replace(self, **vars(EndRecord()))

    @property
    def outcome(self) -> Outcome:
        return Outcome(State(self.state), self.exit_code, self.detail, self.ended)


R = TypeVar("R", bound=EndRecord)


def newest_first(kind: type[R], paths: Iterable[Path]) -> list[R]:
    """Return the records in these files by their field `at`, without those that cannot be read."""
    records = [record for path in paths if (record := files.read_if_valid(kind, path)) is not None]
    return sorted(records, key=attrgetter("at"), reverse=True)


def old(paths: Iterable[Path], seconds: float) -> Iterator[Path]:
    """Yield the paths that nothing has changed for so long."""
    for path in paths:
        try:
            if time.time() - path.stat().st_mtime > seconds:
                yield path
        except FileNotFoundError:
            continue
