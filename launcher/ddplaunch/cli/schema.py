"""`ddplaunch schema`."""

from __future__ import annotations

import argparse

from ddplaunch.cli.jobs import print_json
from ddplaunch.errors import ExitCode

HELP = """
The schema is for editors and other programs. Editors with the YAML language server find it by the first line
of a job file: # yaml-language-server: $schema=job.schema.json
"""


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(_: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.spec.schema import json_schema

    print_json(json_schema())
    return ExitCode.SUCCEEDED
