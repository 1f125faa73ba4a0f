"""Fills a terminal with how a job proceeds: what is wrong, its nodes, its pace, what has changed.

It is drawn once a second, in place, and fits the window's size at that moment. What does not fit is counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from ddplaunch.backends.job import Job
from ddplaunch.report import board, live
from ddplaunch.report.board import Board
from ddplaunch.report.live import Changes

if TYPE_CHECKING:
    from rich.console import Group

_KEPT = 200
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
        self._log: deque[str] = deque(maxlen=_KEPT)
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


def view(stream: IO[str]) -> live.StateView:
    """Return the view for the stream: the full screen on a terminal that can be drawn on, otherwise lines."""
    return Screen(stream) if live.can_draw(stream) else live.Lines(stream, with_output=False)


def window(shown: Board, changes: Sequence[str], width: int, height: int) -> list[Line]:
    """Return the lines of a window with this many columns and lines. Newer changes matter more than older
    ones.
    """
    sections = [
        _head(shown, width),
        _notices(shown, width),
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


def _notices(shown: Board, width: int) -> Section:
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
