"""`ddplaunch init`."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from ddplaunch.agent.text.printable import printable
from ddplaunch.errors import ExitCode, UsageError

_SCRIPT: Final = "train.py"

HELP = """
The job file names the Python code that lies beside it: train.py, main.py, or the only script there is. With
--example, a small training that runs on any machine with torch is written beside it as train.py.

An existing file is never overwritten.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", nargs="?", default="job.yaml", metavar="FILE", help="default: job.yaml")
    parser.add_argument(
        "--example", action="store_true", help="also write train.py, a small training to begin with"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    file = Path(args.file)
    if args.example:
        return _example(file)
    from ddplaunch.spec import template

    script = template.write_new(file)
    named = f", which runs {printable(script)}" if script else ""
    sys.stderr.write(
        f"wrote {file}{named}; `ddplaunch validate {file}`, then `ddplaunch submit {file} --wait`\n"
    )
    if not script:
        sys.stderr.write(
            f"note: {file.parent.absolute()} has no train.py, and no script that is clearly meant: name it "
            "in `command` and `source`, or let `ddplaunch init --example` write one\n"
        )
    return ExitCode.SUCCEEDED


def _example(file: Path) -> int:
    """Write the job file and its script, or neither. Raises UsageError."""
    from ddplaunch.spec import template

    script = file.parent / _SCRIPT
    if file.exists():
        raise UsageError(f"{file} exists already", hint="name another file; nothing was written")
    if script.exists():
        raise UsageError(
            f"{script} exists already",
            hint=f"nothing was written; `ddplaunch init {file}` writes a job file that runs it",
        )
    template.create(script, (files("ddplaunch.cli") / "example" / _SCRIPT).read_text("utf-8"))
    template.write_new(file)
    submit = f"ddplaunch submit {file} --wait"
    sys.stderr.write(
        f"wrote {file} and {script}\n"
        f"  {submit}    trains, on 2 nodes of 2 ranks: here, if no profile says otherwise\n"
        f"  {submit} --set name=hangs --set command[1]=--hang --set watchdog.kill_after=20s\n"
        "                                   hangs, and is explained\n"
    )
    return ExitCode.SUCCEEDED
