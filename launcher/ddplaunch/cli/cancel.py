"""`ddplaunch cancel`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
Tells the job to stop, waits until it has, and kills it when it will not. A job that has ended already stays
as it is, and that is no error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    arguments.handle(parser)
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.report.progress import headline

    backend, handle = jobs.find(args.handle)
    before = backend.job(handle)
    if before.state.ended:
        job = before
        sys.stderr.write(f"{job.handle} had ended already: {headline(job, time.time())}\n")
    else:
        sys.stderr.write(f"stopping {before.handle} …\n")
        try:
            job = backend.cancel(before.handle)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"\nnot waited for; `ddplaunch status {before.handle}` shows whether it has stopped"
            )
            raise
        sys.stderr.write(f"{job.handle} {headline(job, time.time())}\n")
    if args.json:
        from ddplaunch.report.machine import job_data

        print(json.dumps(job_data(job), indent=2))
    return ExitCode.SUCCEEDED
