"""`ddplaunch watch`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import IO, TYPE_CHECKING, Final

from ddplaunch import api
from ddplaunch.cli import jobs
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.parser import Command
from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle, Job
    from ddplaunch.report.live import StateView

_WATCH_HELP = """
Shows a job until it ends: on a terminal as a full screen, redrawn once a second; elsewhere one line for each
change. Nodes in the same state share a row, and unusual ones come first. Ctrl-C stops watching; the job goes
on.

With --web you see the same in a browser, at the address that is printed: on this machine, or on another one
through a forwarded port. Nobody can read the page without knowing the address.

When the job has ended, its `status` is printed. The exit code is that of `status --watch`.
"""


def _add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.handle(parser)
    parser.add_argument("--web", action="store_true", help="serve the page for a browser, on loopback")
    parser.add_argument(
        "--port", type=arguments.port, metavar="PORT", help="with --web: its port (default: any free one)"
    )


def _watch(args: argparse.Namespace) -> int:
    from ddplaunch.cli import exits
    from ddplaunch.report import board

    if args.port is not None and not args.web:
        raise UsageError("--port is for --web", hint="add --web, or leave --port out")
    job = api.status(jobs.job_or_last(args.handle))
    if not job.state.ended:
        if args.web:
            from ddplaunch.cli.page_server import WebView

            with WebView(sys.stderr, args.port or 0) as view:
                job = _until_end(job.handle, view)
        else:
            job = watch_until_end(sys.stdout, job.handle)
    print(board.board_text(board.make_board(job, time.time())))
    return exits.of_job(job)


def watch_until_end(stream: IO[str], handle: Handle) -> Job:
    """Show the job on the stream until it has ended, and return it then. Raises as `api.watch`."""
    from ddplaunch.cli.output import drawn
    from ddplaunch.report import screen

    view = screen.view(stream)
    with drawn(view):
        return _until_end(handle, view)


def _until_end(handle: Handle, view: StateView) -> Job:
    for job in api.watch(handle):
        view.show(job)
    return job


COMMANDS: Final = {
    "watch": Command(_WATCH_HELP, _add_watch_arguments, _watch),
}
