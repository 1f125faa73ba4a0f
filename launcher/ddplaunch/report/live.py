"""Shows a job that its user waits for: as a table at the bottom of a terminal, or as lines in a log.

Both show the phase of every node, and the ranks' output above it or in between. They write only to the stream
that they are given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

from ddplaunch.agent.contract import JobStatus, Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job
from ddplaunch.report import board, progress

if TYPE_CHECKING:
    from rich.table import Table

FIRST_REMINDER = 5.0
"""Seconds without a change until a line repeats what the job waits for; then twice as many, and so on."""
FIRST_PACE = 60.0
"""Seconds from the first line about a job's pace to the second; then twice as many, and so on."""


class Changes:
    """The changes of one job: its phase, nodes in other phases, notices, its pace, and what it waits for.

    `with_output`: the lines are mixed with the job's output, which has the notices and shows that the job
    moves.
    """

    def __init__(self, *, with_output: bool = False) -> None:
        self._with_output = with_output
        self._place: Hashable = None
        self._hint = ""
        self._remind_at = 0.0
        self._patience = FIRST_REMINDER
        self._notices: dict[tuple[str, tuple[int, ...]], Verdict] = {}
        self._pace_at = 0.0
        self._pace_pause = FIRST_PACE

    def lines(self, job: Job, now: float) -> list[str]:
        """Return what is new since the last call. `now` is in seconds since the epoch.

        Without output, the job's end counts as no change, because its whole state follows.
        """
        if self._with_output:
            return self._phase(job, now)
        if job.state.ended:
            return []
        return self._phase(job, now) + self._new_notices(job) + self._pace(job, now)

    def _phase(self, job: Job, now: float) -> list[str]:
        place = progress.place(job)
        if place != self._place:
            self._place = place
            self._patience = FIRST_REMINDER
            self._pace_at, self._pace_pause = 0.0, FIRST_PACE
            if job.status is not None and job.status.phase == Phase.ENDED and not job.state.ended:
                self._remind_at = now + self._patience
                return []  # its result follows at once, unless the scheduler takes its time
        elif not progress.is_waiting(job) or now < self._remind_at:
            return []
        else:
            self._patience *= 2
        self._remind_at = now + self._patience
        lines = [f"{progress.headline(job, now)}{_other_nodes(job, now)}"]
        hint = progress.hint(job)
        if hint != self._hint:
            self._hint = hint
            lines += [f"hint: {hint}"] if hint else []
        return lines

    def _new_notices(self, job: Job) -> list[str]:
        if job.status is not None and job.status.phase == Phase.ENDED:
            return []  # what was wrong has not passed
        known = {(each.code, tuple(each.ranks)): each for each in _notices(job.status)}
        gone = [each.code for key, each in self._notices.items() if key not in known]
        codes = {each.code for each in known.values()}
        lines = [f"{printable(code)} has passed" for code in gone if code not in codes]
        for key, each in known.items():
            if key not in self._notices:
                lines.append(f"notice: {printable(each.code)}: {printable(each.sentence)}")
                lines += [f"hint: {printable(each.hint)}"] if each.hint else []
        self._notices = known
        return lines

    def _pace(self, job: Job, now: float) -> list[str]:
        known = job.status.pace if job.status else None
        text = board.pace_text(known) if known else ""
        if not text or now < self._pace_at:
            return []
        self._pace_at = now + self._pace_pause
        self._pace_pause *= 2
        return [text]


def _notices(status: JobStatus | None) -> list[Verdict]:
    """Return the verdicts on a job that runs; those at the gate are part of its headline."""
    if status is None or status.phase in (Phase.STARTING, Phase.GATE):
        return []
    return status.verdicts


def _other_nodes(job: Job, now: float) -> str:
    """Return a text about the nodes that are in another phase than the job, or have a detail that it does not
    have.
    """
    if job.status is None or job.state.ended or job.status.phase == Phase.ENDED:
        return ""
    texts = [
        progress.elsewhere(row, job.status.phase, now)
        for row in progress.rows(job.status)
        if not set(row.nodes) <= set(job.status.waiting_for) and not (row.detail and row.detail in job.detail)
    ]
    return "".join(f"; {text}" for text in texts if text)


_ROWS = 12
"""Groups of nodes in the table. More would push the ranks' lines off a small terminal."""


class StateView(Protocol):
    """The interface of all ways to show how a job proceeds."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, job: Job) -> None:
        """Show the present state of the job. This is called several times a second."""


class View(StateView, Protocol):
    """The interface of both ways to show a job together with its output."""

    def line(self, text: str) -> None:
        """Show a line of the job's output."""


class Lines:
    """Prints a line for each change and, while the job waits, reminders at growing intervals."""

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
    """A table in the last lines of the terminal. It is drawn several times a second."""

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
        pace = board.make_board(self._job, now).pace
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
    """Return the view for the stream: a table on a terminal that can move its cursor, otherwise lines."""
    return Picture(stream) if can_draw(stream) else Lines(stream)


def can_draw(stream: IO[str]) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    import os

    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
