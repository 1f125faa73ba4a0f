"""`ddplaunch explain`."""

from __future__ import annotations

import argparse
import sys
from shutil import get_terminal_size

from ddplaunch.errors import ExitCode, NotFoundError

HELP = """
Prints what the verdict means, how it shows, how to confirm it by hand, and how to fix it. Without CODE, lists
all codes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="a verdict code, such as rank-in-dataloader")


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from ddplaunch.report import explain

    if args.code is None:
        width = max(map(len, explain.meanings()))
        print("\n".join(f"{code:<{width}}  {meaning}" for code, meaning in explain.meanings().items()))
    elif explain.has_page(args.code):
        text = explain.page(args.code).rstrip()
        print(explain.folded(text, get_terminal_size().columns) if sys.stdout.isatty() else text)
    else:
        raise _unknown(args.code, list(explain.meanings()))
    return ExitCode.SUCCEEDED


def _unknown(code: str, known: list[str]) -> NotFoundError:
    from difflib import get_close_matches

    near = get_close_matches(code, known, n=1)
    return NotFoundError(
        f"there is no verdict {code!r}",
        hint=f"did you mean `ddplaunch explain {near[0]}`?"
        if near
        else "`ddplaunch explain` lists all codes",
    )
