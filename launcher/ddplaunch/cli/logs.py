"""`ddplaunch logs`."""

from __future__ import annotations

import argparse
import sys
import time

from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

HELP = """
Every line begins with [node/rank]. Ranks are global; --rank and --node take numbers such as 0,2-3, and a
line must suit both when both are given.

examples:
  ddplaunch logs -f local://digits
  ddplaunch logs local://digits/3 --rank 0,2-3 --tail 50
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    arguments.handle(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument(
        "-r", "--rank", type=arguments.numbers, metavar="RANKS", help="only these ranks, as in 0,2-3"
    )
    parser.add_argument("--node", type=arguments.numbers, metavar="NODES", help="only these nodes")
    parser.add_argument(
        "-n", "--tail", type=arguments.at_least(0), metavar="N", help="begin with the last N lines"
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.backends.job import Selection

    backend, handle = jobs.find(args.handle)
    wanted = Selection(nodes=args.node, ranks=args.rank, tail=args.tail)
    empty = True
    for line in backend.logs(handle, wanted, follow=args.follow):
        if line:
            empty = False
            sys.stdout.write(f"{line}\n")
        else:
            sys.stdout.flush()
    if empty and args.tail != 0:
        from ddplaunch.report.progress import headline

        job = backend.job(handle)
        what = "nothing" if args.rank is args.node is None else "nothing on those ranks and nodes"
        sys.stderr.write(f"{job.handle} has printed {what}: {headline(job, time.time())}\n")
    return ExitCode.SUCCEEDED
