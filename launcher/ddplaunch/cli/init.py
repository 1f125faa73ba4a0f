"""`ddplaunch init`."""

from __future__ import annotations

import argparse
import sys

from ddplaunch.errors import ExitCode

HELP = """
An existing file is never overwritten.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", nargs="?", default="job.yaml", metavar="FILE", help="default: job.yaml")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.spec import template

    template.write_new(args.file)
    sys.stderr.write(
        f"wrote {args.file}; `ddplaunch validate {args.file}`, then `ddplaunch submit {args.file} --wait`\n"
    )
    return ExitCode.SUCCEEDED
