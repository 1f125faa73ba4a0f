"""`ddplaunch validate`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

if TYPE_CHECKING:
    from ddplaunch.spec.problems import SpecError

HELP = """
Reads each job file as submit would and reports all problems at once: file, line, what was found, what is
wanted, and a hint. With `-` it reads standard input. Nothing is sent anywhere. A note names each variable
under `env` whose value looks like a secret: it belongs under `secrets`.

Ends with 0 when all files are good, else with 2.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a job file, or - for standard input")
    arguments.as_json(parser)


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.spec.load import load
    from ddplaunch.spec.problems import SpecError

    failed: dict[str, SpecError] = {}
    notes: dict[str, list[str]] = {}
    for file in args.files:
        try:
            notes[file] = jobs.notes(load(file))
        except SpecError as error:
            failed[file] = error
    if args.json:
        _print_json(args.files, failed, notes)
    else:
        for file in args.files:
            if file in failed:
                sys.stderr.write(f"{failed[file]}\n\n")
            else:
                sys.stderr.write("\n".join([f"{printable(file)}: good", *notes[file], ""]))
    return ExitCode.USAGE if failed else ExitCode.SUCCEEDED


def _print_json(files: list[str], failed: dict[str, SpecError], notes: dict[str, list[str]]) -> None:
    data = [
        {
            "file": file,
            "problems": [dataclasses.asdict(each) for each in failed[file].problems]
            if file in failed
            else [],
            "notes": notes.get(file, []),
        }
        for file in files
    ]
    print(json.dumps(data, indent=2))
