"""Shows a job that its user waits for: as a table below its output, on the full screen, or as lines.

Table and lines show the phase of every node, and the ranks' output above it or in between. All write only to
the stream that they are given.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self

from ddplaunch.agent.contract import JobStatus, Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job
from ddplaunch.report import board, progress
from ddplaunch.report.board import Board

if TYPE_CHECKING:
    from rich.console import Group
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


# --- the full screen: what is wrong, the nodes, the pace, what has changed
#
# It is drawn once a second, in place, and fits the window's size at that moment. What does not fit is
# counted.

_KEPT_CHANGES = 200
"""Changes to remember. A window shows the last few."""
_LEAST = 3
"""Lines that each section has before a more important section gets more."""
_PLAIN, _BOLD, _QUIET, _ODD, _BAD, _GOOD = "", "bold", "dim", "yellow", "bold red", "green"


class Line(NamedTuple):
    """One line on the screen. `style`: rich's; the line reads the same without it."""

    text: str
    style: str = _PLAIN


Section = list[Line]


class Screen:
    """The whole terminal. Afterwards the terminal is as it was before."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.time) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        self._job: Job | None = None
        self._changes = Changes()
        self._log: deque[str] = deque(maxlen=_KEPT_CHANGES)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=1,
            screen=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=self._job is not None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, job: Job) -> None:
        now = self._clock()
        self._log.extend(f"{_time(now)}  {line}" for line in self._changes.lines(job, now))
        is_first = self._job is None
        self._job = job
        if is_first:
            self._live.refresh()

    def _draw(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        if self._job is None:
            return Group()
        size = self._console.size
        lines = window(board.make_board(self._job, self._clock()), list(self._log), size.width, size.height)
        return Group(
            *(Text(line.text, style=line.style, no_wrap=True, overflow="ellipsis") for line in lines)
        )


def full_screen(stream: IO[str]) -> StateView:
    """Return the view for the stream: the full screen on a terminal that can be drawn on, otherwise lines."""
    return Screen(stream) if can_draw(stream) else Lines(stream, with_output=False)


def window(shown: Board, changes: Sequence[str], width: int, height: int) -> list[Line]:
    """Return the lines of a window with this many columns and lines. Newer changes matter more than older
    ones.
    """
    sections = [
        _head(shown, width),
        _notice_section(shown, width),
        [
            Line(text, _ODD if row[3] else _PLAIN)
            for text, row in zip(board.aligned(shown.rows), shown.rows, strict=True)
        ],
        [Line(text) for text in shown.pace],
        [Line(text, _QUIET) for text in reversed(changes)],
    ]
    return _joined([each for each in sections if each], height)


def fitted(lengths: Sequence[int], room: int) -> list[int]:
    """Return how many lines each section gets, the more important sections first."""
    given = [0] * len(lengths)
    for most in (_LEAST, room):
        for place, length in enumerate(lengths):
            given[place] += max(0, min(length, most) - given[place]) if room > 0 else 0
            spent = sum(given)
            if spent > room:
                given[place] -= spent - room
    return given


def _joined(sections: Sequence[Section], height: int) -> list[Line]:
    """Return the sections one below the other, with an empty line between two if there is room for it."""
    roomy = height >= (_LEAST + 1) * len(sections)
    gaps = len(sections) - 1 if roomy else 0
    lines: list[Line] = []
    for section, length in zip(
        sections, fitted([len(each) for each in sections], height - gaps), strict=True
    ):
        if lines and roomy:
            lines.append(Line(""))
        lines += _cut(section, length)
    return lines


def _cut(section: Section, length: int) -> Section:
    """Return this many lines of a section. The last line counts those that are left out."""
    if len(section) <= length or length < 2:
        return section[:length]
    return [*section[: length - 1], Line(f"… and {len(section) - length + 1} lines more", _QUIET)]


def _head(shown: Board, width: int) -> Section:
    style = _BAD if shown.ended and not shown.good else _GOOD if shown.ended else _BOLD
    lines = [Line(text, style) for text in _folded(f"{shown.handle}  {shown.headline}", width)]
    lines += [Line(text, _ODD) for text in _folded(f"hint: {shown.hint}", width)] if shown.hint else []
    return lines + [Line(text, _QUIET) for text in shown.about]


def _notice_section(shown: Board, width: int) -> Section:
    lines: Section = []
    for notice in shown.notices:
        lines += [Line(text, _BAD) for text in _folded(notice.line, width)]
        lines += [Line(f"  {text}") for text in notice.ranks]
        lines += [Line(f"  {text}") for text in _folded(f"hint: {notice.hint}", width - 2) if notice.hint]
    if shown.notices and shown.more:
        lines.append(Line(shown.more, _QUIET))
    return lines


def _folded(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ") or [text]


def _time(now: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(now))
