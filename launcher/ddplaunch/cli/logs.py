"""`ddplaunch logs`."""

from __future__ import annotations

import argparse
import sys
import time

from ddplaunch import api
from ddplaunch.cli import handles
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
Every line begins with [node/rank]; the rank is the global one. --rank and --node take numbers such as 0,2-3;
with both, a line must match both.

examples:
  ddplaunch logs -f local://digits
  ddplaunch logs local://digits/3 --rank 0,2-3 --tail 50
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    arguments.handle(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="follow the output until the job has ended"
    )
    parser.add_argument(
        "-r", "--rank", type=arguments.numbers, metavar="RANKS", help="only these ranks, as in 0,2-3"
    )
    parser.add_argument("--node", type=arguments.numbers, metavar="NODES", help="only these nodes")
    parser.add_argument(
        "-n", "--tail", type=arguments.at_least(0), metavar="N", help="begin with the last N lines"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    handle = handles.meant(args.handle)
    empty = True
    for line in api.logs(handle, nodes=args.node, ranks=args.rank, tail=args.tail, follow=args.follow):
        empty = False
        print(line, flush=args.follow)
    if empty and args.tail != 0:
        from ddplaunch.report.progress import headline

        job = api.status(handle)
        what = "nothing" if args.rank is args.node is None else "nothing on those ranks and nodes"
        sys.stderr.write(f"{job.handle} has printed {what}: {headline(job, time.time())}\n")
    return ExitCode.SUCCEEDED
