"""`ddplaunch submit`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

HELP = """
Prints the handle of the job, and only it, on standard output; all other commands take it. The job runs on
when this command ends, whatever ends it.

With --wait it shows where every node stands and what the ranks print, and ends with the job's own result:
0 succeeded, 100 the training failed, 103 cancelled, 104 the preflight check failed, 105 hang. Ctrl-C leaves
the job alone and says how to come back to it.

examples:
  ddplaunch submit job.yaml --wait
  ddplaunch submit job.yaml --to slurm
  handle=$(ddplaunch submit job.yaml)
  generate-job | ddplaunch submit -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    parser.add_argument("file", metavar="FILE", help="the job file, or - for standard input")
    arguments.target(parser)
    parser.add_argument("--wait", action="store_true", help="stay until the job has ended")
    parser.add_argument("--dry-run", action="store_true", help="send nothing; show what render shows")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    rendered = jobs.rendered(args.file, args.to)
    if args.dry_run:
        from ddplaunch.cli.render import shown

        sys.stdout.write(shown(rendered))
        return ExitCode.SUCCEEDED

    from ddplaunch.backends import connect, interrupts

    backend = connect(args.to)
    handle = None
    try:
        with interrupts.kept() as interrupt:
            handle = backend.submit(rendered)
            if not args.json:
                # At once, and flushed: a script that is killed while it waits still knows what it started.
                print(handle, flush=True)
            elif not args.wait:
                _print_json(backend.job(handle))
        if interrupt.came:
            raise KeyboardInterrupt
        if not args.wait:
            sys.stderr.write(f"watch it with `ddplaunch logs -f {handle}`\n")
            return ExitCode.SUCCEEDED
        from ddplaunch.cli import watch

        job = watch.until_end(backend, handle)
        watch.conclude(backend, job)
    except KeyboardInterrupt:
        if handle is None:
            raise
        from ddplaunch.cli import watch

        watch.detach(handle)
        if not args.wait:
            return ExitCode.SUCCEEDED
        job = backend.job(handle)
    from ddplaunch.cli import exits

    if args.json:
        _print_json(job)
    return exits.of_job(job)


def _print_json(job: Job) -> None:
    from ddplaunch.report.machine import job_data

    print(json.dumps(job_data(job), indent=2), flush=True)
