"""`ddplaunch status`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.cli import handles, jobs
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
    parser.add_argument("-w", "--watch", action="store_true", help="wait until the job has ended, as `watch`")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.cli import exits

    job = api.status(handles.meant(args.handle))
    if args.watch and not job.state.ended:
        from ddplaunch.cli import watch

        handle = job.handle  # by now with its number: the name alone means the newest
        try:
            job = watch.on(sys.stderr if args.json else sys.stdout, handle)
        except NeverStartsError:
            if args.json:
                _print_json(api.status(handle))
            raise
    if args.json:
        _print_json(job)
    else:
        from ddplaunch.report import board

        print(board.text(board.of(job, time.time())))
    return exits.of_job(job)


def _print_json(job: Job) -> None:
    from ddplaunch.report.machine import job_data

    jobs.print_json(job_data(job))
