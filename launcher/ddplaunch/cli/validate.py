"""`ddplaunch validate`."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
Reads each job file as `submit` would, and reports all problems at once: file, line, what was found, what is
wanted, and a hint. `-` is standard input. Nothing is sent anywhere. A note names each variable under `env`
that looks like a secret and belongs under `secrets`.

The exit code is 0 when all files are valid, else 2.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a job file, or - for standard input")
    arguments.changes(parser)
    arguments.profile(parser)
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    profile = api.profile(args.profile)
    checked = [(file, api.validate(file, args.changes, profile=profile)) for file in args.files]
    if args.json:
        jobs.print_json(
            [
                {
                    "file": file,
                    "problems": [dataclasses.asdict(each) for each in found.problems],
                    "notes": [f"note: {note}" for note in found.notes],
                }
                for file, found in checked
            ]
        )
    else:
        for file, found in checked:
            if found.problems:
                sys.stderr.write(f"{api.SpecError(found.problems)}\n\n")
            else:
                good = f"good, a sweep of {found.jobs} jobs" if found.jobs > 1 else "good"
                notes = [f"note: {note}" for note in found.notes]
                sys.stderr.write("\n".join([f"{printable(file)}: {good}", *notes, ""]))
    bad = any(found.problems for _, found in checked)
    return ExitCode.USAGE if bad else ExitCode.SUCCEEDED
