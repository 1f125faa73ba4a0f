"""A job as it goes on, for somebody who waits: a picture at the foot of a terminal, or lines in a log.

Both show where every node stands and let the ranks' lines scroll by. They only write to the stream they get.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

from ddplaunch.agent.contract import Phase
from ddplaunch.backends.job import Job
from ddplaunch.report import progress

if TYPE_CHECKING:
    from rich.table import Table

FIRST_REMINDER = 5.0
"""Seconds in one place until a log is told again what a job waits for; then twice as many, and so on."""
_ROWS = 12
"""Groups of nodes in the picture. More would push the ranks' lines off a small terminal."""


class View(Protocol):
    """Way to show a watched job."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, job: Job) -> None:
        """The job as it stands now; to be called often."""

    def line(self, text: str) -> None:
        """A line of the job's output."""


class Lines:
    """One line per change of place, and, while the job waits, a reminder ever more seldom."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._clock = clock
        self._place: Hashable = None
        self._hint = ""
        self._remind_at = 0.0
        self._patience = FIRST_REMINDER

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()

    def show(self, job: Job) -> None:
        now = self._clock()
        place = progress.place(job)
        is_new = place != self._place
        if is_new:
            self._place = place
            self._patience = FIRST_REMINDER
        elif not progress.is_waiting(job) or now < self._remind_at:
            return
        else:
            self._patience *= 2
        self._remind_at = now + self._patience
        self.line(f"ddplaunch: {progress.headline(job, now)}{_who(job)}")
        hint = progress.hint(job)
        if hint != self._hint:
            self._hint = hint
            if hint:
                self.line(f"ddplaunch: hint: {hint}")

    def line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class Picture:
    """The last lines of the terminal, drawn again several times a second."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.time) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        self._job: Job | None = None
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, job: Job) -> None:
        self._job = job

    def line(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def _draw(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        if self._job is None:
            return table
        now = self._clock()
        table.add_row(Text(str(self._job.handle), "bold"), Text(progress.headline(self._job, now)))
        hint = progress.hint(self._job)
        if hint and not self._job.state.ended:
            table.add_row(Text("  hint"), Text(hint))
        rows = progress.rows(self._job.status) if self._job.status else []
        for row in rows[:_ROWS]:
            nodes, phase, since, detail = progress.row_text(row, now)
            table.add_row(Text(f"  {nodes}"), Text(f"{phase:<20}{since:>12}  {detail}"))
        if len(rows) > _ROWS:
            table.add_row(Text(f"  … and {len(rows) - _ROWS} more"))
        return table


def view(stream: IO[str]) -> View:
    """Return what suits the stream: a picture on a terminal that can move its cursor, else lines."""
    import os

    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Picture(stream)
    return Lines(stream)


def _who(job: Job) -> str:
    """The nodes that stand elsewhere than the job, or have something to say that is not said yet."""
    if job.status is None or job.state.ended or job.status.phase == Phase.ENDED:
        return ""
    texts = [
        progress.elsewhere(row, job.status.phase)
        for row in progress.rows(job.status)
        if not set(row.nodes) <= set(job.status.waiting_for) and not (row.detail and row.detail in job.detail)
    ]
    return "".join(f"; {text}" for text in texts if text)
