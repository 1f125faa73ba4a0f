"""`ddplaunch status`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

HELP = """
Ends with the job's own result: 0 succeeded, 100 failed, 101 not finished, 103 cancelled, 104 the gate said
no, 105 hang; 102 when there is no such job.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    arguments.handle(parser)
    arguments.as_json(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="stay until the job has ended")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.cli import exits

    backend, handle = jobs.find(args.handle)
    job = backend.job(handle)
    if args.watch and not job.state.ended:
        from ddplaunch.report import live

        with live.view(sys.stderr if args.json else sys.stdout) as view:
            while not job.state.ended:
                view.show(job)
                time.sleep(0.25)
                job = backend.job(job.handle)
    if args.json:
        from ddplaunch.report.machine import job_data

        print(json.dumps(job_data(job), indent=2))
    else:
        print(text(job, time.time()))
    return exits.of_job(job)


def text(job: Job, now: float) -> str:
    """The job in one line, its nodes below, then what is known to be wrong."""
    from ddplaunch.report import progress
    from ddplaunch.report.diagnosis import known_verdicts
    from ddplaunch.report.words import clock

    lines = [f"{job.handle}  {progress.headline(job, now)}", f"  submitted {clock(job.submitted)}"]
    if job.status is not None and not job.state.ended:
        cells = [progress.row_text(row, now) for row in progress.rows(job.status)]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines += [
            "  "
            + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
            for row in cells
        ]
    hint = progress.hint(job)
    if hint and not job.state.ended:
        lines.append(f"  hint: {hint}")
    verdicts = known_verdicts(job)
    lines += [
        f"  {verdict.code}" + ("" if (said := printable(verdict.sentence)) in lines[0] else f": {said}")
        for verdict in verdicts
    ]
    if verdicts:
        lines.append(f"  `ddplaunch diagnose {job.handle}` says why")
    return "\n".join(lines)
