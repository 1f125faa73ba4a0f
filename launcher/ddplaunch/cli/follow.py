"""Shows a job while a user waits for it: its phase, its ranks' output, its end."""

from __future__ import annotations

import re
import sys
import time

from ddplaunch import api
from ddplaunch.agent.contract import Marks
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.cli import terminal
from ddplaunch.report import live, progress, verdict
from ddplaunch.report.diagnosis import Diagnosis

_SPEAKER = re.compile(r"\[(hub|\d+/ddplaunch)\] (.*)")


class VerdictFilter:
    """Filter that keeps one copy of each verdict: the hub and all supervisors print it, in a frame."""

    def __init__(self) -> None:
        self._speaker = ""
        self._framed: set[str] = set()  # speakers that are printing a verdict

    def __call__(self, line: str) -> bool:
        match = _SPEAKER.fullmatch(line)
        if match is None:
            return True
        who, text = match.groups()
        if text.startswith(Marks.FRAME):
            self._speaker = self._speaker or who
            self._framed ^= {who}
        elif who not in self._framed:
            return True
        return who == self._speaker


def until_end(handle: Handle) -> Diagnosis:
    """Show the job on stderr until it has ended, and return its diagnosis. Ctrl-C raises KeyboardInterrupt.

    Raises what `api.follow` raises.
    """
    is_shown = VerdictFilter()
    with live.view(sys.stderr) as view:
        for each in api.follow(handle):
            if isinstance(each, Diagnosis):
                return each
            if isinstance(each, Job):
                view.show(each)
            elif is_shown(each):
                view.line(each)
    raise AssertionError(handle)


def detach(handle: Handle) -> None:
    """Print how to come back to a job that goes on."""
    sys.stderr.write(
        f"\ndetached; {handle} goes on\n"
        f"  ddplaunch logs -f {handle}    to follow it again\n"
        f"  ddplaunch cancel {handle}     to stop it\n"
    )


def conclude(found: Diagnosis) -> None:
    """Print on stderr how the job ended, and why; or why it never starts, and what to do."""
    job = found.job
    paint, width = terminal.paint(sys.stderr), terminal.width(sys.stderr)
    line = progress.headline(job, time.time(), verdicts_below=True)
    good = job.state is State.SUCCEEDED
    sys.stderr.write(f"ddplaunch: {paint.good(line) if good else paint.bad(line)}\n")
    if job.never_starts:
        sys.stderr.write(f"ddplaunch: hint: {progress.hint(job)}\n")
    elif found.verdicts or not good:
        sys.stderr.write(f"\n{verdict.diagnosis_text(found, paint, width)}\n")
