"""Gathers what is to be seen of a job at one moment: for `status`, the full screen and the web page. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ddplaunch.agent.contract import Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job, State
from ddplaunch.report import pace, progress
from ddplaunch.report.diagnosis import known_verdicts
from ddplaunch.report.words import clock, some, sweep_text


class Notice(NamedTuple):
    """A verdict as a board has it. `sentence` is empty where the headline says it."""

    code: str
    sentence: str
    ranks: list[str]  # the ranks at fault, and those that only wait, as text
    hint: str

    @property
    def line(self) -> str:
        return f"{self.code}: {self.sentence}" if self.sentence else self.code


class Board(NamedTuple):
    """A job at one moment, as text. `rows`: groups of nodes, with phase, time in it, and detail."""

    handle: str
    headline: str
    about: list[str]
    rows: list[tuple[str, str, str, str]]
    pace: list[str]
    hint: str
    notices: list[Notice]
    more: str  # the command that says more
    ended: bool
    good: bool  # it has ended well, or nothing is wrong yet


def of(job: Job, now: float) -> Board:
    """Return the board of a job; `now` in seconds since the epoch."""
    verdicts = known_verdicts(job)
    about = [f"submitted {clock(job.submitted)}"]
    if job.sweep:
        about.append(f"of a sweep, with {printable(sweep_text(job.sweep))}")
    status = None if job.state.ended else job.status
    more = f"`ddplaunch diagnose {job.handle}` says why" if verdicts else ""
    last = progress.last_failed(job)
    if not verdicts and last:
        more = f"`ddplaunch diagnose {job.handle} --attempt {last}` says why"
    hint = "" if job.state.ended else progress.hint(job)
    return Board(
        handle=str(job.handle),
        headline=progress.headline(job, now, verdicts_below=True),
        about=about + progress.earlier(job),
        rows=[progress.row_text(row, now) for row in progress.rows(status)] if status else [],
        pace=pace.lines(status.pace) if status and status.pace else [],
        hint=hint,
        notices=[_notice(job, verdict, hint) for verdict in verdicts],
        more=more,
        ended=job.state.ended,
        good=not verdicts and job.state in (State.SUCCEEDED, State.RUNNING, State.PENDING),
    )


def text(board: Board) -> str:
    """Return the board as `status` prints it: without ranks and hints of notices."""
    lines = [f"{board.handle}  {board.headline}", *(f"  {line}" for line in board.about)]
    lines += [f"  {line}" for line in aligned(board.rows)]
    lines += [f"  {line}" for line in board.pace]
    if board.hint:
        lines.append(f"  hint: {board.hint}")
    lines += [f"  {notice.line}" for notice in board.notices]
    if board.more:
        lines.append(f"  {board.more}")
    return "\n".join(lines)


def aligned(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Return rows of a table as lines, with their cells below one another."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    ]


def _notice(job: Job, verdict: Verdict, hint: str) -> Notice:
    sentence = "" if progress.is_in_headline(job, verdict) else printable(verdict.sentence)
    if sentence and progress.is_preliminary(job, verdict):
        sentence = f"{sentence}; this may pass"
    ranks = [
        f"{some('rank', numbers)} {what}"
        for numbers, what in ((verdict.ranks, "at fault"), (verdict.victims, _victims(job)))
        if numbers
    ]
    own = printable(verdict.hint)
    return Notice(printable(verdict.code), sentence, ranks, "" if own == hint else own)


def _victims(job: Job) -> str:
    ended = job.state.ended or (job.status is not None and job.status.phase == Phase.ENDED)
    return "ended or waited because of it" if ended else "can only wait"
