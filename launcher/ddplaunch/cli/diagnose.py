"""`ddplaunch diagnose`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
While the job runs, it is asked for the stacks and counters of all its ranks as they stand now, and goes on.
When it has ended, what it left is read. What must be mended first stands first.

Ends with 0 whatever is wrong with the job; `ddplaunch status` ends with the job's own result.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    arguments.handle(parser)
    arguments.as_json(parser)
    parser.add_argument("--html", metavar="FILE", help="write all evidence as one HTML file as well")


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.cli import report_file
    from ddplaunch.report import diagnosis, verdict

    if args.html is not None:
        report_file.check(Path(args.html))
    backend, handle = jobs.find(args.handle)
    handle = backend.job(handle).handle
    bundle = backend.collect(handle)
    found = diagnosis.diagnose(backend.job(handle), bundle)
    if args.html is not None:
        from ddplaunch.report import html

        report_file.write(Path(args.html), html.page(found))
    if args.json:
        from ddplaunch.report.machine import diagnosis_data

        print(json.dumps(diagnosis_data(found), indent=2))
    else:
        from ddplaunch.cli import terminal

        print(verdict.diagnosis_text(found, terminal.paint(sys.stdout), terminal.width(sys.stdout)))
    return ExitCode.SUCCEEDED
