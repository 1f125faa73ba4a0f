"""Shows a job that a user waits for: as a table at the foot of a terminal, or as lines in a log.

Both show the phase of every node, and the ranks' output above or between. They write to the given stream
only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

from ddplaunch.backends.job import Job
from ddplaunch.report import board, progress
from ddplaunch.report.changes import Changes

if TYPE_CHECKING:
    from rich.table import Table

_ROWS = 12
"""Groups of nodes in the table. More would push the ranks' lines off a small terminal."""


class StateView(Protocol):
    """Interface of all ways to show how a job proceeds."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, job: Job) -> None:
        """Show the present state of the job; called several times a second."""


class View(StateView, Protocol):
    """Interface of both ways to show a job together with its output."""

    def line(self, text: str) -> None:
        """Show a line of the job's output."""


class Lines:
    """Prints a line for each change, and while the job waits, reminders at growing intervals."""

    def __init__(
        self, stream: IO[str], clock: Callable[[], float] = time.time, *, with_output: bool = True
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._changes = Changes(with_output=with_output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.flush()

    def show(self, job: Job) -> None:
        for line in self._changes.lines(job, self._clock()):
            self.line(f"ddplaunch: {line}")

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
        pace = board.of(self._job, now).pace
        if pace:
            table.add_row(Text("  pace"), Text(pace[0]))
        rows = progress.rows(self._job.status) if self._job.status else []
        for row in rows[:_ROWS]:
            nodes, phase, since, detail = progress.row_text(row, now)
            table.add_row(Text(f"  {nodes}"), Text(f"{phase:<20}{since:>12}  {detail}"))
        if len(rows) > _ROWS:
            table.add_row(Text(f"  … and {len(rows) - _ROWS} more"))
        return table


def view(stream: IO[str]) -> View:
    """Return the view for the stream: a table on a terminal that can move its cursor, else lines."""
    return Picture(stream) if can_draw(stream) else Lines(stream)


def can_draw(stream: IO[str]) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    import os

    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
