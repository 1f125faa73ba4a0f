"""`ddplaunch schema`."""

from __future__ import annotations

import argparse
import json

from ddplaunch.errors import ExitCode

HELP = """
For editors and other programs. Editors that know the YAML language server read it from the first line of a
job file: # yaml-language-server: $schema=job.schema.json
"""


def add_arguments(_: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return ExitCode.SUCCEEDED
