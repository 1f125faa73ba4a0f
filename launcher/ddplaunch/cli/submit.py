"""`ddplaunch submit`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.api.files import startable
from ddplaunch.cli import commanded, jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode, NeverStartsError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.cli.parser import Parser
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

Without a job file, the words after -- are the script and its arguments: what a job file with that `command`
does, in this folder. The options set what such a file would; --set and a profile set the rest. Ranks run in
this folder, as with sbatch. Pods have another one: to Kubernetes travels what the script needs, as `init`
proposes it, unless `--set source=[…]` names something else, or the script is in the image and not here.
--save writes that job file, and then submits the job.

examples:
  ddplaunch submit job.yaml --wait
  ddplaunch submit --to slurm --nodes 2 --nproc-per-node 8 --gpus 8 --time 2h -- train.py --epochs 3
  ddplaunch submit --to kubernetes --image registry.example.com/trainer:1.0 --save job.yaml -- train.py
  ddplaunch submit job.yaml --to slurm
  ddplaunch submit eval.yaml --to slurm --after slurm://1234
  ddplaunch submit job.yaml --set nodes=4 --set env.LR=0.1
  ddplaunch logs -f "$(ddplaunch submit job.yaml)"
  generate-job | ddplaunch submit -
"""


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command."""
    parser.after_dashes = "command"
    parser.usage = "%(prog)s [options] FILE\n       %(prog)s [options] -- SCRIPT ..."
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="the job file, or - for standard input; or, after --, a script and its arguments",
    )
    arguments.target(parser)
    commanded.add_arguments(parser)
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
    plans = _plans(args)
    if args.dry_run:
        from ddplaunch.cli import abridged
        from ddplaunch.cli.render import shown

        plan = jobs.only(plans, args.file or "the command line")
        rendered = api.render(plan)
        startable(plan)
        abridged.write(shown(rendered))
        return ExitCode.SUCCEEDED
    return _sweep(plans, args) if plans[0].sweep else _one(plans[0], args)


def _plans(args: argparse.Namespace) -> list[Plan]:
    """Return the plan of each job. Raises UsageError for a file and a command, or for neither."""
    if args.command is not None and args.file is not None:
        raise UsageError(
            f"both a job file, {args.file}, and a command after --",
            hint=f"{args.file} has a `command` already: `--set` changes it; else leave out the file",
        )
    if args.command is None and args.file is None:
        raise UsageError(
            "no job: neither a job file nor a command",
            hint="`ddplaunch submit job.yaml`, or `ddplaunch submit -- train.py --epochs 3`",
        )
    if args.command is None:
        commanded.refuse_options(args)
        return jobs.plan(args, args.after)
    job = commanded.load(args)
    plans = jobs.planned(job.specs, args, args.after)
    if args.save is not None:
        for plan in plans:
            startable(plan)
        job.save(args.save)
    return plans


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
        if plan.keeps_no_files:
            sys.stderr.write(
                "note: the job has no volume (`volumes`): what its ranks write is gone with their pods; "
                "`outputs` keeps it\n"
            )
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
