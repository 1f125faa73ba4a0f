"""The agent's command line: arguments and environment to one call. The rest is imported when asked for."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Optional

from ddplaunch.agent import codec, contract
from ddplaunch.agent.contract import Env, Exit, Files


class UnusableError(Exception):
    """The agent was called in a way that cannot work; the message says what is missing."""


def main(argv: Optional[list[str]] = None) -> int:
    """Returns the exit code; see `contract.Exit`."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.die_with_parent is not None:
            from ddplaunch.agent import processes

            processes.die_with_parent(arguments.die_with_parent)
        folder = os.path.abspath(arguments.folder)
        plan = _plan(folder)
        return _call(arguments, plan, folder)
    except UnusableError as error:
        sys.stderr.write(f"error: {error}\n")
        return Exit.UNUSABLE


def _call(arguments: argparse.Namespace, plan: contract.JobPlan, folder: str) -> int:
    attempt = _number(Env.ATTEMPT, 0)
    if arguments.verb == "local":
        from ddplaunch.agent import local

        return local.main(plan, folder, attempt, gate_only=arguments.gate_only)
    key = os.environ.get(Env.KEY, "").encode()
    if not key:
        raise UnusableError(f"{Env.KEY} is not set: by this key the nodes of a job know one another")
    if arguments.verb == "hub":
        from ddplaunch.agent.hub import hub

        return hub.main(plan, folder, attempt, key, arguments.host, arguments.port or plan.gate.port)
    host, port = _hub()
    node = _number(Env.NODE, None)
    if arguments.verb == "gate":
        from ddplaunch.agent.gate import gate

        return gate.main(plan, folder, node, attempt, key, host, port)
    from ddplaunch.agent.supervise import supervisor

    return supervisor.main(plan, folder, node, attempt, key, host, port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="ddplaunch's agent on one node of a job.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--folder", default=".", help=f"the job's folder, with {Files.PLAN} (default: here)")
    common.add_argument("--die-with-parent", type=int, metavar="PID", help="stop when PID, our parent, dies")
    hub = verbs.add_parser("hub", parents=[common], help="collect what the nodes say, and decide")
    hub.add_argument("--host", help="address to listen on (default: all)")
    hub.add_argument("--port", type=int, help="port to listen on (default: the plan's, else a free one)")
    verbs.add_parser("gate", parents=[common], help="prove the way from this node to its peers")
    verbs.add_parser("run", parents=[common], help="run and watch the launch command of this node")
    local = verbs.add_parser("local", parents=[common], help="run all nodes of the job on this machine")
    local.add_argument("--gate-only", action="store_true", help="stop after the gate, start no training")
    return parser


def _plan(folder: str) -> contract.JobPlan:
    path = os.path.join(folder, Files.PLAN)
    try:
        plan = codec.read(contract.JobPlan, path)
    except OSError as error:
        raise UnusableError(f"{path}: {error.strerror}") from error
    except codec.ContractError as error:
        raise UnusableError(f"{path}: {error}") from error
    if plan.version != contract.VERSION:
        raise UnusableError(f"{path} has version {plan.version}, this agent reads {contract.VERSION}")
    return plan


def _hub() -> tuple[str, int]:
    value = os.environ.get(Env.HUB, "")
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit():
        raise UnusableError(f"{Env.HUB} is {value!r}; wanted host:port of the hub")
    return host.strip("[]"), int(port)


def _number(name: str, default: Optional[int]) -> int:
    value = os.environ.get(name, "")
    if value.isdigit():
        return int(value)
    if value or default is None:
        raise UnusableError(f"{name} is {value!r}; wanted a number from 0")
    return default
