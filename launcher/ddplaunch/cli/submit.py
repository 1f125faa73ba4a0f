"""`ddplaunch submit`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.api.files import startable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode, NeverStartsError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.plan.plan import Plan

HELP = """
Prints only the job's handle on standard output; the other commands take it. The job goes on when this command
ends, for whatever reason.

With --wait, this shows the phase of every node and the output of the ranks, and the exit code is the job's
result: 0 succeeded, 100 the training failed, 103 cancelled, 104 the preflight check failed, 105 hang. Ctrl-C
leaves the job running and prints how to come back to it. A job that waits for what can never happen, such as
the success of one that has failed, is given up after 10 s, with exit code 104; it stays in the queue.

Of a job file with a `sweep` all jobs are submitted, or none: when one is refused, those before it are
cancelled. Each handle has a line of its own. With --wait, this waits for all of them and shows how each
ended, and the exit code is that of the first, in their order, that did not succeed.

examples:
  ddplaunch submit job.yaml --wait
  ddplaunch submit job.yaml --to slurm
  ddplaunch submit eval.yaml --to slurm --after slurm://1234
  ddplaunch submit job.yaml --set nodes=4 --set env.LR=0.1
  handle=$(ddplaunch submit job.yaml)
  generate-job | ddplaunch submit -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="the job file, or - for standard input")
    arguments.target(parser)
    arguments.changes(parser)
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="HANDLE",
        help="start when that job has succeeded (Slurm), by its handle, its number or its name; may be given "
        "several times",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the job has ended")
    parser.add_argument("--dry-run", action="store_true", help="send nothing; print what `render` prints")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    plans = jobs.plan(args, args.after)
    if args.dry_run:
        from ddplaunch.cli import abridged
        from ddplaunch.cli.render import shown

        plan = jobs.only(plans, args.file)
        rendered = api.render(plan)
        startable(plan)
        abridged.write(shown(rendered))
        return ExitCode.SUCCEEDED
    return _sweep(plans, args) if plans[0].sweep else _one(plans[0], args)


def _one(plan: Plan, args: argparse.Namespace) -> int:
    """Submit a job, and return the exit code."""
    from ddplaunch.backends import interrupts

    handle = None
    try:
        with interrupts.kept() as interrupt:
            handle = api.submit(plan)
            if not args.json:
                # Flushed at once: a script that is killed while it waits still has the handle.
                print(handle, flush=True)
            elif not args.wait:
                _print_json(api.status(handle))
        if interrupt.came:
            raise KeyboardInterrupt
        if args.wait:
            return _wait(handle, as_json=args.json)
        sys.stderr.write(f"watch it with `ddplaunch logs -f {handle}`\n")
    except KeyboardInterrupt:
        if handle is None:
            raise
        from ddplaunch.cli import exits, follow

        follow.detach(handle)
        if args.wait:
            job = api.status(handle)
            if args.json:
                _print_json(job)
            return exits.of_job(job)
    return ExitCode.SUCCEEDED


def _wait(handle: Handle, *, as_json: bool) -> int:
    """Show the job until its end, and return its exit code. Raises NeverStartsError."""
    from ddplaunch.cli import exits, follow

    try:
        found = follow.until_end(handle)
    except NeverStartsError:
        if as_json:
            _print_json(api.status(handle))
        raise
    follow.conclude(found)
    if as_json:
        _print_json(found.job)
    return exits.of_job(found.job)


def _sweep(plans: list[Plan], args: argparse.Namespace) -> int:
    """Submit all jobs of a sweep, and return the exit code."""
    from ddplaunch.cli import many

    handles = many.submit(plans, printed=not args.json)
    code = many.wait(handles) if args.wait else ExitCode.SUCCEEDED
    if args.json:
        from ddplaunch.report.machine import job_data

        known = {job.handle: job for job in api.jobs(args.to)}
        jobs.print_json([job_data(known.get(handle) or api.status(handle)) for handle in handles])
    elif not args.wait:
        target = "" if args.to == "local" else f" --to {args.to}"
        sys.stderr.write(f"{len(handles)} jobs; `ddplaunch list{target}` shows them\n")
    return code


def _print_json(job: Job) -> None:
    from ddplaunch.report.machine import job_data

    jobs.print_json(job_data(job))
