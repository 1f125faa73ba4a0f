"""`ddplaunch list`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

HELP = """
The newest come first: all that run, and of those that have ended as many as make 20 lines.
"""

_LINES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    arguments.target(parser, "whose jobs")
    parser.add_argument("-a", "--all", action="store_true", help="every job, however old")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.backends import connect

    found = connect(args.to).jobs()
    kept = [job for index, job in enumerate(found) if args.all or index < _LINES or not job.state.ended]
    if args.json:
        from ddplaunch.report.machine import job_data

        print(json.dumps([job_data(job) for job in kept], indent=2))
        return ExitCode.SUCCEEDED
    if kept:
        print(table(kept, time.time()))
    else:
        target = "" if args.to == "local" else f" --to {args.to}"
        sys.stderr.write(f"no jobs yet; `ddplaunch submit job.yaml{target}` starts one\n")
    if len(kept) < len(found):
        sys.stderr.write(f"{len(found) - len(kept)} older jobs: `ddplaunch list --all`\n")
    return ExitCode.SUCCEEDED


def table(jobs: list[Job], now: float) -> str:
    """One line per job, under a line of headings."""
    from ddplaunch.report.words import clock, duration

    rows = [["HANDLE", "NAME", "STATE", "SUBMITTED", "TOOK", "WHAT"]]
    for job in jobs:
        took = duration((job.ended or now) - job.submitted)
        rows.append(
            [str(job.handle), printable(job.name), str(job.state), clock(job.submitted), took, _what(job)]
        )
    if all(job.name in job.handle.path.split("/") for job in jobs):
        rows = [[row[0], *row[2:]] for row in rows]  # the handle tells it
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    )


def _what(job: Job) -> str:
    from ddplaunch.report.diagnosis import known_verdicts

    verdicts = known_verdicts(job)
    if verdicts:
        return verdicts[0].code
    if job.detail or job.status is None or job.state.ended:
        return printable(job.detail)
    return job.status.phase if job.status.phase != job.state else ""
