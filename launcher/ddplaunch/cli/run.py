"""`ddplaunch run -- COMMAND`."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Exit
from ddplaunch.cli import parser as arguments
from ddplaunch.errors import ExitCode

if TYPE_CHECKING:
    from ddplaunch.agent.contract import Bundle, WatchdogPlan

HELP = """
The same supervision as a submitted job has: a check of this machine first, logs with the rank on every line,
a verdict when it hangs or fails. It needs no job file, runs in the foreground, and nothing of it outlives
this command, however that ends. Ctrl-C stops it, evidence first; a second one kills it.

Ends with 0 when the command succeeds, with the command's own exit code when it fails, 103 when it was
stopped, 104 when the check said no, 105 when it hung and was ended.

example:
  ddplaunch run -- torchrun --nproc-per-node=2 train.py --epochs 3
"""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.usage = "%(prog)s [--name NAME] [--notice-after TIME] [--kill-after TIME] -- COMMAND ..."
    parser.add_argument(
        "--name",
        type=arguments.job_name,
        default="run",
        metavar="NAME",
        help="the job's name in `list` and in its handle (default: run)",
    )
    parser.add_argument(
        "--notice-after",
        type=arguments.seconds,
        default=None,
        metavar="TIME",
        help="say what is wrong after so long without any progress (default: 10s)",
    )
    parser.add_argument(
        "--kill-after",
        type=arguments.seconds_or_never,
        default=None,
        metavar="TIME",
        help="end the command after so long without any progress, or never (default: 10m)",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training command"
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    from ddplaunch.backends.job import State
    from ddplaunch.backends.local import backend as local
    from ddplaunch.plan.plan import adhoc
    from ddplaunch.render import render

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    backend = local.connect()
    handle, child = backend.start_here(render(adhoc(command, args.name, _watchdog(args))))
    # The command runs in a session of its own, where the terminal's Ctrl-C does not reach it.
    for each in _PASSED_ON:
        signal.signal(each, lambda number, _: backend.pass_on(handle, signal.Signals(number)))
    code = child.wait()
    sys.stderr.write(f"ddplaunch: `ddplaunch diagnose {handle}` has the evidence\n" if code else "")
    if backend.job(handle).state is State.CANCELLED:
        return ExitCode.CANCELLED
    return _exit_code(code, backend.collect(handle))


def _watchdog(args: argparse.Namespace) -> WatchdogPlan:
    from ddplaunch.agent.contract import WatchdogPlan

    chosen = {name: getattr(args, name) for name in ("notice_after", "kill_after")}
    never = {"kill_after": None} if args.kill_after == arguments.NEVER else {}
    return WatchdogPlan(**{name: value for name, value in chosen.items() if value is not None} | never)


def _exit_code(code: int, bundle: Bundle | None) -> int:
    """The agent's exit code in this command's words; the training's own when that failed."""
    from ddplaunch.cli import exits

    if code in (Exit.WORKER_FAILED, Exit.OUT_OF_MEMORY):
        own = [node.launch_exit for node in bundle.evidence.evidence] if bundle and bundle.evidence else []
        for end in own:
            if end is not None and end.signal:
                return 128 + end.signal
            if end is not None and end.code:
                return end.code
        return ExitCode.UNEXPECTED
    return exits.OF_AGENT.get(code, ExitCode.FAILED)
