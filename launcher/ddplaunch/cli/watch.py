"""Waiting for a job before a person's eyes: where it stands, what its ranks print, how it ended."""

from __future__ import annotations

import dataclasses
import re
import sys
import time

from ddplaunch.backends import Backend
from ddplaunch.backends.job import EVERYTHING, Handle, Job, State
from ddplaunch.cli import terminal
from ddplaunch.report import diagnosis, live, progress, verdict

_SPEAKER = re.compile(r"\[(hub|\d+/ddplaunch)\] (.*)")
_FRAME = "----"
_LOOK = 0.25
"""Seconds between two looks at the job's state while its output flows."""


class VerdictFilter:
    """Whether a line is worth a look: hub and supervisors print a verdict in a frame, one does for all."""

    def __init__(self) -> None:
        self._speaker = ""
        self._framed: set[str] = set()  # who is in the middle of a verdict

    def __call__(self, line: str) -> bool:
        match = _SPEAKER.fullmatch(line)
        if match is None:
            return True
        who, text = match.groups()
        if text.startswith(_FRAME):
            self._speaker = self._speaker or who
            self._framed ^= {who}
        elif who not in self._framed:
            return True
        return who == self._speaker


def until_end(backend: Backend, handle: Handle) -> Job:
    """Show the job on stderr until it has ended. Ctrl-C raises KeyboardInterrupt, as ever."""
    is_shown = VerdictFilter()
    with live.view(sys.stderr) as view:
        looked = 0.0
        for line in backend.logs(handle, EVERYTHING, follow=True):
            if line and is_shown(line):
                view.line(line)
            if time.monotonic() - looked >= _LOOK:
                view.show(backend.job(handle))
                looked = time.monotonic()
    return backend.job(handle)


def detach(handle: Handle) -> None:
    """Say how to come back to a job that goes on."""
    sys.stderr.write(
        f"\ndetached; {handle} goes on\n"
        f"  ddplaunch logs -f {handle}    to see it again\n"
        f"  ddplaunch cancel {handle}     to stop it\n"
    )


def conclude(backend: Backend, job: Job) -> None:
    """Print how it ended, and why, on stderr."""
    paint, width = terminal.paint(sys.stderr), terminal.width(sys.stderr)
    said = any(each.sentence == job.detail for each in job.verdicts)  # and is, below
    line = progress.headline(dataclasses.replace(job, detail="") if said else job, time.time())
    good = job.state is State.SUCCEEDED
    sys.stderr.write(f"ddplaunch: {paint.good(line) if good else paint.bad(line)}\n")
    found = diagnosis.diagnose(job, backend.collect(job.handle))
    if found.verdicts or not good:
        sys.stderr.write(f"\n{verdict.diagnosis_text(found, paint, width)}\n")
