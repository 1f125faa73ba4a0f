"""`ddplaunch cancel`."""

from __future__ import annotations

import argparse
import sys
import time

from ddplaunch import api
from ddplaunch.cli import handles, jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
Stops the job, waits for its end, and kills it if it does not end in time. For a job that has already ended,
it changes nothing, and that is not an error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    arguments.handle(parser, more="")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.report.progress import headline

    before = api.status(handles.named(args.handle))
    if before.state.ended:
        job = before
        sys.stderr.write(f"{job.handle} had already ended: {headline(job, time.time())}\n")
    else:
        sys.stderr.write(f"stopping {before.handle} …\n")
        try:
            job = api.cancel(before.handle)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"\nstopped waiting; `ddplaunch status {before.handle}` shows whether the job has ended"
            )
            raise
        sys.stderr.write(f"{job.handle} {headline(job, time.time())}\n")
    if args.json:
        from ddplaunch.report.machine import job_data

        jobs.print_json(job_data(job))
    return ExitCode.SUCCEEDED
