"""`ddplaunch interfaces`: prints for this machine what `agent.pyz interfaces` prints on a node."""

from __future__ import annotations

import argparse
import sys

from ddplaunch.cli.parser import as_json
from ddplaunch.errors import ExitCode

HELP = """
Predicts the interfaces by the libraries' own rules, with reasons, and asks the libraries themselves, if
--python has them. On a node, run `python3 agent.pyz interfaces`; the folder of each job has an agent.pyz.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    as_json(parser)
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PYTHON",
        help="a Python that has torch (default: ddplaunch's own)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.agent.contract import Exit
    from ddplaunch.agent.interfaces import command

    code = command.main(args.python, args.json)
    return ExitCode.SUCCEEDED if code == Exit.OK else ExitCode.UNEXPECTED
