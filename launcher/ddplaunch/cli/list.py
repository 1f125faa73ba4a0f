"""`ddplaunch list`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.jobs import print_json
from ddplaunch.errors import ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

HELP = """
The newest jobs come first: all that run, and ended ones up to 20 lines in all. On Slurm your other jobs are
listed too, while they wait or run.
"""

_LINES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    default = "the profile's, else where the last job went, else local, this machine"
    arguments.target(parser, "the scheduler whose jobs to list", default)
    parser.add_argument("-a", "--all", action="store_true", help="list every job, however old")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    named = args.to is not None
    if named and args.profile:
        api.profile(args.profile, args.to)  # refuses a profile of another target
    args.to = args.to or target_meant(args.profile)
    found = api.jobs(args.to)
    kept = [job for index, job in enumerate(found) if args.all or index < _LINES or not job.state.ended]
    if args.json:
        from ddplaunch.report.machine import job_data

        print_json([job_data(job) for job in kept])
        return ExitCode.SUCCEEDED
    target = f" --to {args.to}" if named else ""
    if kept:
        print(table(kept, time.time()))
    else:
        sys.stderr.write(f"no jobs yet; `ddplaunch submit job.yaml{target}` starts one\n")
    if len(kept) < len(found):
        sys.stderr.write(f"{len(found) - len(kept)} older jobs: `ddplaunch list{target} --all`\n")
    return ExitCode.SUCCEEDED


def target_meant(profile: str | None) -> str:
    """Return the target of the profile, else that of the last job, with a line on stderr, else this machine.

    Raises UsageError, SpecError for a profile that is named, and broken.
    """
    try:
        chosen = api.profile(profile)
    except (UsageError, api.SpecError) as error:
        if profile:
            raise
        sys.stderr.write(f"{error}\n\nnote: these are the jobs of this machine\n")
        return "local"
    if chosen is not None and chosen.target:
        return chosen.target
    try:
        target = api.last().target
    except NotFoundError:
        return "local"
    if target != "local":
        sys.stderr.write(
            f"jobs on {target}, where the last one went; `--to local` lists those of this machine\n"
        )
    return target


def table(jobs: list[Job], now: float) -> str:
    """Return a line of headings, and a line for each job."""
    from ddplaunch.report.words import clock, duration, sweep_text

    rows = [["HANDLE", "NAME", "SWEEP", "STATE", "SUBMITTED", "TOOK", "WHAT"]]
    for job in jobs:
        took = duration((job.ended or now) - job.submitted)
        name, values = printable(job.name), printable(sweep_text(job.sweep))
        rows.append([str(job.handle), name, values, str(job.state), clock(job.submitted), took, _what(job)])
    if not any(job.sweep for job in jobs):
        rows = [[*row[:2], *row[3:]] for row in rows]
    if all(job.name in job.handle.path.split("/") for job in jobs):
        rows = [[row[0], *row[2:]] for row in rows]  # the handle contains it
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    )


def _what(job: Job) -> str:
    from ddplaunch.report.progress import numbered

    return (numbered(job) + _present(job)).removesuffix(": ")


def _present(job: Job) -> str:
    from ddplaunch.report.diagnosis import known_verdicts

    verdicts = known_verdicts(job)
    if verdicts:
        return verdicts[0].code
    if job.detail or job.status is None or job.state.ended:
        return printable(job.detail)
    return job.status.phase if job.status.phase != job.state else ""
