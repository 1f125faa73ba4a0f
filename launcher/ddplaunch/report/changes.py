"""Finds what is new about a job that is looked at again and again, a line for each change. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from ddplaunch.agent.contract import JobStatus, Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job
from ddplaunch.report import pace, progress

FIRST_REMINDER = 5.0
"""Seconds without a change until a line repeats what the job waits for; then twice as many, and so on."""
FIRST_PACE = 60.0
"""Seconds from the first line on the pace of a job to the second; then twice as many, and so on."""


class Changes:
    """Changes of one job: its phase, the nodes elsewhere, notices, its pace, and what it waits for.

    `with_output`: the lines stand among the job's output, which has the notices, and shows that it moves.
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
        """Return what is new since the last call; `now` in seconds since the epoch.

        Without output the end of the job is none: its whole state follows.
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
        text = pace.text(known) if known else ""
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
    """Return a text on the nodes in another phase than the job, or with a detail that it does not have."""
    if job.status is None or job.state.ended or job.status.phase == Phase.ENDED:
        return ""
    texts = [
        progress.elsewhere(row, job.status.phase, now)
        for row in progress.rows(job.status)
        if not set(row.nodes) <= set(job.status.waiting_for) and not (row.detail and row.detail in job.detail)
    ]
    return "".join(f"; {text}" for text in texts if text)
