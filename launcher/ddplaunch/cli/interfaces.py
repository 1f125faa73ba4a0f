"""`ddplaunch interfaces`: what `agent.pyz interfaces` says on a node, for the machine at hand."""

from __future__ import annotations

import argparse
import sys

from ddplaunch.cli.parser import as_json
from ddplaunch.errors import ExitCode

HELP = """
By the libraries' own rules, with why; and what the libraries say themselves, where --python has them. On a
node of a cluster: `python3 agent.pyz interfaces`, with the agent.pyz from the folder of a job.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    as_json(parser)
    parser.add_argument(
        "--python", default=sys.executable, metavar="PYTHON", help="the one that has torch (default: ours)"
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.agent.contract import Exit
    from ddplaunch.agent.interfaces import command

    told = command.main(args.python, args.json)
    return ExitCode.SUCCEEDED if told == Exit.OK else ExitCode.UNEXPECTED
