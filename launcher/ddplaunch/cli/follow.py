"""Shows a job while a user waits for it: its phase, its ranks' output, its end."""

from __future__ import annotations

import contextlib
import sys
import time

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.cli import terminal
from ddplaunch.cli.drawing import drawn
from ddplaunch.cli.frames import Frames
from ddplaunch.errors import DdplaunchError
from ddplaunch.report import live, progress, verdict, words
from ddplaunch.report.diagnosis import Diagnosis


def until_end(handle: Handle) -> Diagnosis:
    """Show the job on stderr until it has ended, and return its diagnosis. Ctrl-C raises KeyboardInterrupt.

    Raises what `api.follow` raises.
    """
    frames = Frames(handle)
    attempt = 0
    view = live.view(sys.stderr)
    with drawn(view):
        for each in api.follow(handle):
            if isinstance(each, str):
                lines = frames.shown(each)
            elif isinstance(each, Job):
                lines = frames.released() if each.attempt > attempt else []
                attempt = max(attempt, each.attempt)
                view.show(each)
            else:
                lines = [] if each.verdicts else frames.released()
            for line in lines:
                view.line(line)
            if isinstance(each, Diagnosis):
                return each
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
    if job.state.ended:
        _name_outputs(job)
    if not job.never_starts and (found.verdicts or not good):
        sys.stderr.write(f"\n{verdict.diagnosis_text(found, paint, width)}\n")


def _name_outputs(job: Job) -> None:
    """Print on stderr how many files the ranks left, and where."""
    with contextlib.suppress(DdplaunchError):  # how the job ended stands above
        for each in api.outputs(job.handle, listed=False):
            newest = each.newest
            if not each.listed:
                sys.stderr.write(
                    f"ddplaunch: outputs: `ddplaunch outputs {job.handle}` lists them; they are in "
                    f"{printable(each.where)}\n"
                )
            if newest is not None and each.own:
                node = "" if each.node is None else f" of node {each.node}"
                many = f"{words.count(len(each.files), 'file')}, {words.size(each.size)}"
                where = f"newest {printable(newest.path)}, in {printable(str(each.folder))}"
                sys.stderr.write(f"ddplaunch: outputs{node}: {many}, {where}\n")
