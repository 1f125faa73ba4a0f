"""`run --join`: nodes that the user or a scheduler starts. Each works out its number and joins the others.

Here are the options, for the agent and for the launcher.

`spot` works out node rank, number of nodes and master from options, the launcher's arguments
and the variables of schedulers; both are pure. `key` gets the secret by which the nodes authenticate, on
Slurm through MUNGE. `prepare` makes a plan of all this, which `agent.local` runs for this one node.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Env, GatePlan, WatchdogPlan

JOB = "run"
"""The default of the job's name, which must be the same on all nodes."""


def add_arguments(parser: argparse.ArgumentParser, seconds: Callable[[str], float] = float) -> None:
    """Add the options of --join; `seconds` parses a time."""
    auto = "default: from torchrun, PET_* or the scheduler"
    options: dict[str, dict[str, Any]] = {
        "--nodes": {"type": int, "metavar": "N", "help": f"how many nodes there are ({auto})"},
        "--node-rank": {
            "type": int,
            "metavar": "N",
            "help": f"the rank of this node, counted from 0 ({auto})",
        },
        "--master": {"metavar": "HOST", "help": f"name or address of node 0 ({auto})"},
        "--port": {"type": int, "metavar": "PORT", "help": f"the ranks' master port ({auto}, or a free one)"},
        "--gate-port": {
            "type": int,
            "metavar": "PORT",
            "help": (
                "the port of node 0's hub; the key server uses the next port (default: derived from the "
                "job's name)"
            ),
        },
        "--gate-timeout": {
            "type": seconds,
            "default": GatePlan.timeout,
            "metavar": "TIME",
            "help": "how long the nodes wait for one another (default: 2 minutes)",
        },
        "--key-file": {
            "metavar": "FILE",
            "help": f"a file with the secret that all nodes share (default: {Env.KEY}, MUNGE under "
            "Slurm, or ~/.config/ddplaunch/key)",
        },
    }
    parser.add_argument(
        "--join", action="store_true", help="this is one of several nodes that all run this command"
    )
    for name, settings in options.items():
        parser.add_argument(name, **{**settings, "help": f"with --join: {settings['help']}"})


def add_prefix(parser: argparse.ArgumentParser) -> None:
    """Add the options on the ranks' names before their lines."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--prefix",
        action="store_true",
        default=None,
        help="put [node/rank] before each line (default: in a terminal, if several ranks print)",
    )
    which.add_argument(
        "--no-prefix", action="store_false", dest="prefix", help="show the bytes as the command writes them"
    )


def add_agents_own(parser: argparse.ArgumentParser) -> None:
    """Add the options that the launcher's `run` always has, and the agent's only with --join."""
    seconds: dict[str, Any] = {"metavar": "SECONDS", "help": "with --join: as for `ddplaunch run`"}
    parser.add_argument("--name", default=JOB, help=f"with --join: the job's name (default: {JOB})")
    parser.add_argument("--notice-after", type=float, **seconds)
    parser.add_argument("--kill-after", type=or_never(float), **seconds)
    add_prefix(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="with --join")


NEVER = math.inf
"""The value of `--kill-after never`."""


def or_never(seconds: Callable[[str], float]) -> Callable[[str], float]:
    """Return what parses the value of --kill-after, where `seconds` parses a time."""
    return lambda text: NEVER if text == "never" else seconds(text)


def watchdog(notice_after: Optional[float], kill_after: Optional[float]) -> WatchdogPlan:
    """Return what these options say; None: it is not given."""
    notice = WatchdogPlan.notice_after if notice_after is None else notice_after
    if kill_after is None:
        return WatchdogPlan(notice, patient=True)
    return WatchdogPlan(notice, None if kill_after == NEVER else kill_after)
