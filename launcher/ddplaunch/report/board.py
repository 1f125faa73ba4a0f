"""Gathers what there is to see of a job at one moment, for `status`, the full screen and the web page.
Pure.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from ddplaunch.agent.contract import JobPace, Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job, State
from ddplaunch.report import known_verdicts, progress
from ddplaunch.report.words import clock, count, duration, some, sweep_text

_MATTERS = 0.1
"""Share of time above which it is mentioned: a rank is looked at once a second, for a minute."""
_APART = 0.2
"""The rank that waits least is named if it waits less than the others by this share."""


def pace_text(pace: JobPace) -> str:
    """Return 'a step takes 420 ms, 2.4 a second; of the last minute 35% in collectives'; may be empty."""
    parts = [f"a step takes {_step(pace.step)}"] if pace.step is not None else []
    shares = {"in collectives": pace.in_collectives, "waiting for data": pace.for_data}
    if pace.first and (shown := _first_to_go_on(pace)):
        parts.append(shown)
    elif known := [f"{each:.0%} {name}" for name, each in shares.items() if each and each >= _MATTERS]:
        parts.append(f"of the last minute {', '.join(known)}")
    return "; ".join(parts)


def pace_lines(pace: JobPace) -> list[str]:
    """Return `text`, and a line about how many ranks it covers and which ranks wait least for the others."""
    known = pace_text(pace)
    if not known:
        return []
    shares = [
        f"rank {each.rank} {each.in_collectives:.0%}"
        for each in pace.first
        if each.in_collectives is not None
    ]
    if len(shares) < 2:
        return [known]
    least = "; in collectives least" if pace.ranks > len(shares) else "; in collectives"
    return [known, f"{count(pace.ranks, 'rank')}{least}: {', '.join(shares)}"]


def _first_to_go_on(pace: JobPace) -> str:
    """Return a text about the rank that waits least for the others; empty if none stands out."""
    least, *others = pace.first
    known = [each.in_collectives for each in others if each.in_collectives is not None]
    mostly = pace.in_collectives if pace.ranks > len(pace.first) or not known else statistics.median(known)
    if least.in_collectives is None or mostly is None or mostly - least.in_collectives < _APART:
        return ""
    data = f" and waits for data {least.for_data:.0%}" if (least.for_data or 0.0) >= _MATTERS else ""
    where = f"rank {least.rank} is in collectives {least.in_collectives:.0%}{data} of the last minute"
    return f"{where}, the others {mostly:.0%}"


def _step(seconds: float) -> str:
    pace_text = f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
    return f"{pace_text}{_rate(seconds)}"


def _rate(seconds: float) -> str:
    """Return how many steps there are in a second or in a minute; empty if there is less than one."""
    for unit, size in (("a second", 1.0), ("a minute", 60.0)):
        if 0 < seconds < size:
            each = size / seconds
            return f", {each:.1f} {unit}" if each < 9.95 else f", {each:.0f} {unit}"
    return ""


class Notice(NamedTuple):
    """A verdict on the board. `sentence` is empty if the headline already has it."""

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
    more: str  # the command that tells you more
    ended: bool
    good: bool  # it has ended well, or nothing is wrong yet


def make_board(job: Job, now: float) -> Board:
    """Return the board of a job. `now` is in seconds since the epoch."""
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
        pace=pace_lines(status.pace) if status and status.pace else [],
        hint=hint,
        notices=[_notice(job, verdict, hint) for verdict in verdicts],
        more=more,
        ended=job.state.ended,
        good=not verdicts and job.state in (State.SUCCEEDED, State.RUNNING, State.PENDING),
    )


def board_text(board: Board) -> str:
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
    """Return the rows of a table as lines, with their cells aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    ]


def _notice(job: Job, verdict: Verdict, hint: str) -> Notice:
    sentence = "" if progress.is_in_headline(job, verdict) else printable(verdict.sentence)
    if sentence and progress.is_preliminary(job, verdict):
        sentence = f"{sentence}; this may be temporary"
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
