"""`ddplaunch schema`."""

from __future__ import annotations

import argparse

from ddplaunch.cli.jobs import print_json
from ddplaunch.errors import ExitCode

HELP = """
The schema is for editors and other programs. Editors with the YAML language server find that of the job
file by its first line: # yaml-language-server: $schema=job.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "of",
        nargs="?",
        choices=("job", "config", "diagnose"),
        default="job",
        metavar="OF",
        help="`job` for the job file, which is the default; `config` for the user's "
        "configuration; `diagnose` for what `diagnose --json` prints",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    if args.of == "diagnose":
        from ddplaunch.report.diagnosis_schema import json_schema
    elif args.of == "config":
        from ddplaunch.spec.config import json_schema
    else:
        from ddplaunch.spec.schema import json_schema
    print_json(json_schema())
    return ExitCode.SUCCEEDED
