"""Shows a job that a user waits for: as a table at the foot of a terminal, or as lines in a log.

Both show the phase of every node, and the ranks' output above or between. They write to the given stream
only.
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
"""Seconds without a change until a log repeats what the job waits for; then twice as many, and so on."""
_ROWS = 12
"""Groups of nodes in the table. More would push the ranks' lines off a small terminal."""


class View(Protocol):
    """Interface of both ways to show a job."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, job: Job) -> None:
        """Show the present state of the job; called several times a second."""

    def line(self, text: str) -> None:
        """Show a line of the job's output."""


class Lines:
    """Prints a line for each change, and while the job waits, reminders at growing intervals."""

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
        self.line(f"ddplaunch: {progress.headline(job, now)}{_other_nodes(job)}")
        hint = progress.hint(job)
        if hint != self._hint:
            self._hint = hint
            if hint:
                self.line(f"ddplaunch: hint: {hint}")

    def line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class Picture:
    """A table in the last lines of the terminal, drawn several times a second."""

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
    """Return the view for the stream: a table on a terminal that can move its cursor, else lines."""
    import os

    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Picture(stream)
    return Lines(stream)


def _other_nodes(job: Job) -> str:
    """Return a text on the nodes in another phase than the job, or with a detail that it does not have."""
    if job.status is None or job.state.ended or job.status.phase == Phase.ENDED:
        return ""
    texts = [
        progress.elsewhere(row, job.status.phase)
        for row in progress.rows(job.status)
        if not set(row.nodes) <= set(job.status.waiting_for) and not (row.detail and row.detail in job.detail)
    ]
    return "".join(f"; {text}" for text in texts if text)
