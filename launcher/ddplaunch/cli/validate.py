"""`ddplaunch validate`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import NamedTuple

from ddplaunch import api
from ddplaunch.agent.text.printable import printable
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ClusterError, DdplaunchError, ExitCode

HELP = """
Reads each job file as `submit` would, and reports all problems at once: file, line, what was found, what is
wanted, and a hint. `-` is standard input. What `submit` refuses is refused here: files of `source` that are
missing or too large, a script that is not there, what a target cannot do. A note names each variable under
`env` that looks like a secret and belongs under `secrets`. Nothing is submitted.

Without --to a file is checked for the target of the profile, else for each that has a section in the file,
else for this machine, and no scheduler is asked. With --to the scheduler is asked as well, and takes no job:
`sbatch --test-only`, or a dry run of the Kubernetes server.

The exit code is 0 when all files are valid, else 2; 106 when they are, and the scheduler would refuse one or
cannot be reached.

examples:
  ddplaunch validate job.yaml
  ddplaunch validate job.yaml --to slurm
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a job file, or - for standard input")
    arguments.target(
        parser, "the scheduler to check for, and to ask", "the profile's, else those of the file's sections"
    )
    arguments.changes(parser)
    arguments.as_json(parser)


class _Checked(NamedTuple):
    file: str
    found: api.Validation
    answer: str = ""  # of the scheduler
    refused: ClusterError | None = None

    @property
    def errors(self) -> list[DdplaunchError]:
        problems = [api.SpecError(self.found.problems)] if self.found.problems else []
        return [*problems, *self.found.errors]


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    profile = api.profile(args.profile, args.to)
    checked = []
    for file in args.files:
        found = api.validate(file, args.changes, profile=profile, to=args.to)
        checked.append(_asked(_Checked(file, found)) if args.to else _Checked(file, found))
    if args.json:
        jobs.print_json([_data(each) for each in checked])
    else:
        for each in checked:
            sys.stderr.write(_text(each))
    if any(each.errors for each in checked):
        return ExitCode.USAGE
    return ExitCode.CLUSTER if any(each.refused for each in checked) else ExitCode.SUCCEEDED


def _asked(checked: _Checked) -> _Checked:
    """Return it with the scheduler's answer, where there is nothing else to mend."""
    if not checked.found.plans:
        return checked
    try:
        answers = api.try_out(checked.found.plans)
    except ClusterError as error:
        return checked._replace(refused=error)
    return checked._replace(answer="; ".join(dict.fromkeys(answers)))


def _text(checked: _Checked) -> str:
    found = checked.found
    if checked.errors:
        return "".join(f"{error}\n\n" for error in checked.errors)
    good = f"good, a sweep of {found.jobs} jobs" if found.jobs > 1 else "good"
    if found.targets != ("local",):
        good += f" for {' and '.join(found.targets)}"
    if checked.refused:
        good += ", as far as this can be known here"
    elif checked.answer:
        good += f"; {checked.answer}"
    lines = [f"{checked.file}: {good}", *(f"note: {note}" for note in found.notes)]
    text = "".join(f"{printable(line)}\n" for line in lines)
    return text + (f"{checked.refused}\n\n" if checked.refused else "")


def _data(checked: _Checked) -> dict[str, object]:
    more = [*checked.found.errors, *([checked.refused] if checked.refused else [])]
    return {
        "file": checked.file,
        "targets": list(checked.found.targets),
        "problems": [dataclasses.asdict(each) for each in checked.found.problems],
        "errors": [{"message": each.message, "hint": each.hint} for each in more],
        "notes": [f"note: {note}" for note in checked.found.notes],
    }
