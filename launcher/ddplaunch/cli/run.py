"""`ddplaunch run -- COMMAND`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.join import options
from ddplaunch.cli import parser as arguments
from ddplaunch.cli.stops import StopRequested, Stops
from ddplaunch.errors import ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from signal import Signals

    from ddplaunch.agent.contract import Bundle, WatchdogPlan
    from ddplaunch.agent.join.prepare import JoinedJob
    from ddplaunch.backends.local.backend import LocalBackend
    from ddplaunch.plan.plan import Plan

HELP = """
The same supervision as a submitted job has: a check of this machine first, logs with the rank on every line,
a verdict when it hangs or fails. It needs no job file, runs in the foreground, and nothing of it outlives
this command, however that ends. Ctrl-C stops it, evidence first; after a second one it waits no longer for
ranks that do not end.

On several nodes, each of them runs the same command with --join: then they hold the gate together, one hub
hears all their ranks, and all of them end with one verdict. Node rank, number of nodes and master are taken
from torchrun's arguments, from PET_* and from the variables of Slurm, of Indexed Jobs and of Open MPI.

Ends with 0 when the command succeeds, with the command's own exit code when it fails (with --join 100, on
all nodes), 103 when it was stopped, 104 when the preflight check failed, 105 when it hung and was ended.

examples:
  ddplaunch run -- torchrun --nproc-per-node=2 train.py --epochs 3
  srun --ntasks-per-node=1 ddplaunch run --join -- torchrun --nproc-per-node=2 train.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that may follow the verb."""
    parser.usage = (
        "%(prog)s [--name NAME] [--notice-after TIME] [--kill-after TIME] [--join [OPTIONS]] -- COMMAND ..."
    )
    parser.add_argument(
        "--name",
        type=arguments.job_name,
        default=options.JOB,
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
    options.add_arguments(parser, arguments.seconds)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the training command"
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    stops = Stops()
    try:
        return _run(args, stops)
    except StopRequested:
        _say("stopped before the command was started")
        return ExitCode.CANCELLED
    finally:
        stops.end()


def _run(args: argparse.Namespace, stops: Stops) -> int:
    from ddplaunch.backends.local import backend as local
    from ddplaunch.plan.plan import adhoc

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    plan = adhoc(command, args.name, _watchdog(args))
    if not args.join:
        _say_what_is_unseen(command)
        return _carry(local.connect(), plan, stops)
    joining = _prepare(args, command, plan.job.watchdog)
    if joining is None:
        return ExitCode.GATE
    os.environ.update(joining.environment)
    plan = dataclasses.replace(plan, job=joining.plan)
    words = [f"--node={joining.node}", f"--key-server={shlex.join(joining.key_server)}"]
    if joining.node == 0:
        return _carry(local.connect(), plan, stops, words)
    with tempfile.TemporaryDirectory(prefix="ddplaunch-") as passing:
        # The record of the job is node 0's, whose hub writes it.
        return _carry(local.LocalBackend(Path(passing)), plan, stops, words)


def _carry(backend: LocalBackend, plan: Plan, stops: Stops, words: Sequence[str] = ()) -> int:
    from ddplaunch.cli import exits
    from ddplaunch.render import render

    rendered = render(plan)
    rendered = dataclasses.replace(rendered, command=(*rendered.command, *words))
    stops.hold()
    handle, child = backend.start_here(rendered)
    # The command runs in a session of its own, where the terminal's Ctrl-C does not reach it.

    def pass_on(number: Signals) -> None:
        try:
            backend.pass_on(handle, number)
        except NotFoundError:
            child.host.send(number)

    stops.pass_on(pass_on)
    code = child.wait()
    # Its record may lack the end, where the disk is full, or be gone: the exit code has it.
    try:
        bundle, gate_passed = backend.collect(handle), backend.job(handle).gate_passed
    except NotFoundError:
        bundle, gate_passed = None, True
    if code and bundle:
        _say(f"`ddplaunch diagnose {handle}` has the evidence")
    elif code and plan.job.nodes > 1:
        _say("node 0 has the evidence")
    if stops.requested and code != Exit.OK and (code < 0 or code == Exit.STOPPED):
        return ExitCode.CANCELLED
    if plan.job.nodes > 1:
        # Each node ends with the same code, whichever has the command that failed.
        return exits.of_agent(code, gate_passed=gate_passed)
    return _exit_code(code, bundle, gate_passed=gate_passed)


def _prepare(args: argparse.Namespace, command: list[str], watchdog: WatchdogPlan) -> JoinedJob | None:
    """This node's part of the job; None when there is no way for the key, which is then said."""
    from ddplaunch.agent.diagnosis import verdict_text
    from ddplaunch.agent.join import munge
    from ddplaunch.agent.join.prepare import prepare
    from ddplaunch.agent.join.spot import CannotJoinError

    try:
        return prepare(args, command, args.name, watchdog, os.environ, _say)
    except CannotJoinError as error:
        raise UsageError(str(error), hint=error.hint) from error
    except munge.NoKeyError as error:
        print("\n".join(verdict_text.block([error.verdict], final=True)))
        return None


def _say_what_is_unseen(command: list[str]) -> None:
    from ddplaunch.agent.join import spot

    nodes = spot.elsewhere(command, os.environ)
    if nodes is not None:
        _say(
            f"this is one of {nodes.value} nodes ({nodes.source}), and the ranks of the others are not seen: "
            "`ddplaunch run --join` on every node sees all of them"
        )


def _say(text: str) -> None:
    sys.stderr.write(f"ddplaunch: {text}\n")


def _watchdog(args: argparse.Namespace) -> WatchdogPlan:
    from ddplaunch.agent.contract import WatchdogPlan

    chosen = {name: getattr(args, name) for name in ("notice_after", "kill_after")}
    never = {"kill_after": None} if args.kill_after == arguments.NEVER else {}
    return WatchdogPlan(**{name: value for name, value in chosen.items() if value is not None} | never)


def _exit_code(code: int, bundle: Bundle | None, *, gate_passed: bool) -> int:
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
    return exits.of_agent(code, gate_passed=gate_passed)
