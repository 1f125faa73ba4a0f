"""`ddplaunch status`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import NeverStartsError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

HELP = """
Once a job has run for a minute, a line shows how long a step takes, by the job's own collectives, and which
rank waits least for the others. With --json that is `pace`: medians, and `first`, the ranks that wait least.

The exit code shows the job's result: 0 succeeded, 100 failed, 101 not finished, 103 cancelled, 104 the
preflight check failed, 105 hang; 102 when there is no such job. With --watch, 104 also ends the wait for a
job that can never start; it stays in the queue.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    arguments.handle(parser)
    arguments.as_json(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="wait until the job has ended")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.cli import exits

    job = api.status(args.handle)
    if args.watch and not job.state.ended:
        from ddplaunch.report import live

        handle = job.handle  # by now with its number: the name alone means the newest
        with live.view(sys.stderr if args.json else sys.stdout) as view:
            try:
                for job in api.watch(handle):
                    if not job.state.ended:
                        view.show(job)
            except NeverStartsError:
                if args.json:
                    _print_json(job)
                raise
    if args.json:
        _print_json(job)
    else:
        print(text(job, time.time()))
    return exits.of_job(job)


def _print_json(job: Job) -> None:
    from ddplaunch.report.machine import job_data

    jobs.print_json(job_data(job))


def text(job: Job, now: float) -> str:
    """Return the job in one line, its nodes and its pace below, then its verdicts."""
    from ddplaunch.report import pace, progress
    from ddplaunch.report.diagnosis import known_verdicts
    from ddplaunch.report.words import clock, sweep_text

    lines = [f"{job.handle}  {progress.headline(job, now)}", f"  submitted {clock(job.submitted)}"]
    if job.sweep:
        lines.append(f"  of a sweep, with {printable(sweep_text(job.sweep))}")
    lines += [f"  {line}" for line in progress.earlier(job)]
    if job.status is not None and not job.state.ended:
        cells = [progress.row_text(row, now) for row in progress.rows(job.status)]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines += [
            "  "
            + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
            for row in cells
        ]
    if job.status is not None and job.status.pace and (steps := pace.text(job.status.pace)):
        lines.append(f"  {steps}")
    hint = progress.hint(job)
    if hint and not job.state.ended:
        lines.append(f"  hint: {hint}")
    verdicts = known_verdicts(job)
    lines += [
        f"  {verdict.code}"
        + ("" if (sentence := printable(verdict.sentence)) in lines[0] else f": {sentence}")
        for verdict in verdicts
    ]
    if verdicts:
        lines.append(f"  `ddplaunch diagnose {job.handle}` says why")
    elif job.earlier:
        lines.append(f"  `ddplaunch diagnose {job.handle} --attempt {job.earlier[-1].number}` says why")
    return "\n".join(lines)
