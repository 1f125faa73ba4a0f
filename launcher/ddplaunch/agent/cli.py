"""The agent's command line: turns arguments and environment into one call. It imports late."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Optional

from ddplaunch.agent import contract, join
from ddplaunch.agent.contract import Env, Exit, Files
from ddplaunch.agent.platforms import places, slurm, termination
from ddplaunch.agent.text.printable import HintedError, error_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddplaunch.agent.local import host
    from ddplaunch.agent.supervisor.launch import LaunchStreams
    from ddplaunch.agent.transport.endpoints import Endpoint

_WITHOUT_PLAN = {"ask", "interfaces", "keys", "look", *slurm.VERBS}
_SIGNALLED = {"gate", "run", "local"}
"""These read their signals when they are ready to. Until then their parent may block the signals."""


class UnusableError(HintedError):
    """The agent's arguments or environment cannot work. The message says what is wrong."""


def main(argv: Optional[list[str]] = None) -> int:
    """Run the command line. Returns a `contract.Exit`."""
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a peer's text may have other characters
    try:
        if arguments.in_background:
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
        if arguments.verb not in _SIGNALLED:
            from ddplaunch.agent.system import signals

            signals.unblock()
        if arguments.die_with_parent is not None:
            from ddplaunch.agent.system import processes

            processes.die_with_parent(arguments.die_with_parent)
        folder = os.path.abspath(arguments.folder)
        return _call(arguments, folder)
    except (UnusableError, places.UnplacedError) as error:
        sys.stderr.write(error_text(error))
        return Exit.UNUSABLE


def _call(arguments: argparse.Namespace, folder: str) -> int:
    if arguments.verb in _WITHOUT_PLAN:
        return _without_plan(arguments, folder)
    if arguments.verb == "run" and arguments.join:
        from ddplaunch.agent.join import run

        return run.main(arguments)
    plan, refused = _plan(folder)
    if arguments.verb == "hub" and termination.wanted() and _number(Env.NODE, None) != 0:
        from ddplaunch.agent.hub import process

        process.idle(plan.job, _number(Env.NODE, None))
        return Exit.OK
    plan = dataclasses.replace(plan, names=places.names(plan, os.environ))
    attempt = _number(Env.ATTEMPT, 0)
    if arguments.verb == "rank":
        from ddplaunch.agent.supervisor import mpi_keeper

        return mpi_keeper.main(plan, folder, arguments.words[1:])
    if arguments.verb == "local":
        return _local(arguments, plan, folder, attempt)
    key = (os.environ.get(Env.KEY) or os.environ.get(Env.UID, "")).encode()
    if not key:
        raise UnusableError(f"{Env.KEY} is not set: by this key the nodes of a job know one another")
    if arguments.verb == "hub":
        return _hub(arguments, plan, folder, attempt, key, refused)
    where = places.hub(plan, attempt, key, os.environ)
    node = _number(places.node_variable(os.environ), None)
    if arguments.verb == "gate" and refused:
        from ddplaunch.agent.gate import gate

        return gate.refuse(node, refused)
    if arguments.verb == "gate":
        from ddplaunch.agent.gate import gate

        return gate.main(plan, folder, node, attempt, key, where, ran=False)
    return _supervise(plan, folder, node, attempt, key, where, _streams(arguments))


def _local(arguments: argparse.Namespace, plan: contract.JobPlan, folder: str, attempt: int) -> int:
    from ddplaunch.agent.local import carrier, host

    part = None if arguments.node is None else _part(arguments)
    streams = None
    if arguments.foreground:
        streams = carrier.UserStreams(
            prefix=arguments.prefix,
            group=arguments.raw,
            more=_numbers(arguments.descriptors),
            blocked=_numbers(arguments.blocked),
        )
    return host.main(plan, folder, attempt, arguments.gate_only, part, streams)


def _streams(arguments: argparse.Namespace) -> Optional[LaunchStreams]:
    if not arguments.streams:
        return None
    from ddplaunch.agent.supervisor.launch import LaunchStreams

    stdin, stdout, stderr = map(int, arguments.streams.split(","))
    more, blocked = _numbers(arguments.descriptors), _numbers(arguments.blocked)
    return LaunchStreams(stdin, stdout, stderr, arguments.carrier, arguments.group, more, blocked)


def _numbers(words: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, words.split(","))))


def _supervise(
    plan: contract.JobPlan,
    folder: str,
    node: int,
    attempt: int,
    key: bytes,
    where: Sequence[Endpoint],
    streams: Optional[LaunchStreams],
) -> int:
    """Run this node's ranks, and again, after another gate, as often as the hub lets newcomers in."""
    agreed = os.path.join(folder, Files.NODE.format(node=node), Files.AGREED)
    while True:
        if plan.min_nodes and termination.wanted() and not os.path.exists(agreed):
            print(f"node {node} has nothing to run: it has not passed its gate, which says why", flush=True)
            return Exit.OK
        from ddplaunch.agent.supervisor import launch, reaper, supervisor

        place = launch.LaunchContext(folder, node)
        code = supervisor.main(plan, folder, node, attempt, key, where, streams)
        if code != contract.REGROUP:
            return code
        place.set_aside(attempt + place.regroups)
        from ddplaunch.agent.gate import gate

        # It has a process of its own, because it has threads and the supervisor forks.
        code = reaper.guard(
            lambda _: gate.main(plan, folder, node, attempt, key, where, ran=True), by_pipe=False
        )
        if code != Exit.OK:
            return code


def _hub(
    arguments: argparse.Namespace,
    plan: contract.JobPlan,
    folder: str,
    attempt: int,
    key: bytes,
    refused: list[contract.Verdict],
) -> int:
    from ddplaunch.agent.hub import hub

    if arguments.ended is not None:
        from ddplaunch.agent.hub import recovery

        return recovery.conclude(plan, folder, arguments.ended)
    port = plan.gate.port if arguments.port is None else arguments.port
    if port == 0:
        port = places.hub_port(plan.job, attempt, key)
    name = arguments.name or (plan.names[0] if plan.names and termination.wanted() else None)
    place = hub.ListenAddress(arguments.host, port, name)
    return hub.main(plan, folder, attempt, key, place, arguments.gate_only, arguments.again, refused)


def _without_plan(arguments: argparse.Namespace, folder: str) -> int:
    if arguments.verb == "keys":
        from ddplaunch.agent.join import run

        return run.keys(arguments.port, arguments.occasion)
    if arguments.verb == "ask":
        from ddplaunch.agent.hub import query

        if arguments.of:
            from ddplaunch.agent.outside import find_ranks

            folder = find_ranks.folder_of_hub(arguments.of, find_ranks.processes())
        return query.main(folder, arguments.what, arguments.why)
    if arguments.verb == "look":
        from ddplaunch.agent.outside import look

        return look.print_evidence(arguments.of or "")
    if arguments.verb == "interfaces":
        from ddplaunch.agent.interfaces import command

        return command.main(arguments.python, arguments.json)
    if arguments.verb == "comment":
        return slurm.comment_at_end(folder)
    from ddplaunch.agent.slurm import node_hooks, prologue

    verbs = {"prolog": node_hooks.prolog, "epilog": node_hooks.epilog, "prologue": prologue.main}
    return verbs[arguments.verb]()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent.pyz", description="ddplaunch's agent on one node of a job.")
    parser.add_argument("--version", action="version", version=sys.version)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--folder", default=".", help=f"the job's folder, with {Files.PLAN} (default: here)")
    common.add_argument("--die-with-parent", type=int, metavar="PID", help="stop when PID, our parent, dies")
    common.add_argument(
        "--in-background", action="store_true", help="a shell has started us so, and ignores SIGINT for us"
    )
    hub = verbs.add_parser("hub", parents=[common], help="collect the nodes' reports, and judge the job")
    hub.add_argument("--host", help="address to listen on (default: all)")
    hub.add_argument("--port", type=int, help="port to listen on; 0: by the job's key (default: the plan's)")
    hub.add_argument("--gate-only", action="store_true", help="end after the gate: no supervisor will come")
    hub.add_argument("--again", action="store_true", help="replace a hub that was killed")
    hub.add_argument("--name", help="this machine's name, by which the other nodes know it")
    hub.add_argument(
        "--ended", type=int, metavar="CODE", help="the nodes' exit code: write the result for a killed hub"
    )
    keys = verbs.add_parser(
        "keys", parents=[common], help="serve the job's key to the same user's other nodes"
    )
    keys.add_argument("--port", type=int, required=True, help="where they ask for it")
    keys.add_argument("--occasion", default="", help="what they call the job")
    verbs.add_parser("gate", parents=[common], help="check this node, and try the paths to its peers")
    run = verbs.add_parser("run", parents=[common], help="run and watch the launch command of this node")
    join.add_arguments(run)
    join.add_agents_own(run)
    run.add_argument("--streams", default="", help=argparse.SUPPRESS)  # descriptors of the command
    run.add_argument("--carrier", default="", help=argparse.SUPPRESS)
    run.add_argument("--group", type=int, help=argparse.SUPPRESS)
    run.add_argument("--descriptors", default="", help=argparse.SUPPRESS)  # others of the command
    run.add_argument("--blocked", default="", help=argparse.SUPPRESS)
    rank = verbs.add_parser("rank", parents=[common], help="run one rank that an MPI launcher has started")
    rank.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the rank's own command")
    local = verbs.add_parser("local", parents=[common], help="run all nodes of the job on this machine")
    local.add_argument("--node", type=int, metavar="N", help="only this node; the others are elsewhere")
    local.add_argument("--key-server", default="", metavar="WORDS", help="of node 0: arguments of `keys`")
    local.add_argument("--gate-only", action="store_true", help="stop after the gate, start no training")
    local.add_argument(
        "--foreground", action="store_true", help="of one node: its command has our stdin, stdout and stderr"
    )
    join.add_prefix(local)
    local.add_argument(
        "--raw", type=int, metavar="GROUP", help="as they are, in the terminal's process group GROUP"
    )
    local.add_argument("--descriptors", default="", metavar="N,…", help="others that the command gets")
    local.add_argument("--blocked", default="", metavar="N,…", help="signals that the command blocks")
    ask = verbs.add_parser("ask", parents=[common], help="send one request to the hub of a job")
    ask.add_argument("what", choices=["status", "diagnose", "stop", "ending"], help="`ending`: by WHY, soon")
    ask.add_argument("--of", metavar="NAME=VALUE", help="a variable of the hub, in place of --folder")
    ask.add_argument("why", nargs="?", default="", metavar="WHY", help="for the verdict, and for the log")
    here = verbs.add_parser(
        "interfaces", parents=[common], help="which interfaces NCCL and Gloo take on this host, and why"
    )
    here.add_argument("--json", action="store_true", help="for programs")
    here.add_argument("--python", default=sys.executable, help="the one that has torch (default: this one)")
    look = verbs.add_parser("look", parents=[common], help="look at ranks that ddplaunch did not start")
    whose = look.add_mutually_exclusive_group(required=True)
    whose.add_argument("--of", metavar="NAME=VALUE", help="a variable of the job's processes")
    whose.add_argument("--all", action="store_true", help="all processes are of the job, as in a container")
    for verb, what in slurm.VERBS.items():
        verbs.add_parser(verb, parents=[common], help=what)
    return parser


def _part(arguments: argparse.Namespace) -> host.Part:
    """Return the one node of the job on this machine. Raises ValueError."""
    from ddplaunch.agent.local import host
    from ddplaunch.agent.transport import endpoints

    (hub,) = endpoints.parse(os.environ.get(Env.HUB, ""))
    key_server = shlex.split(arguments.key_server)
    return host.Part(arguments.node, hub, os.environ[Env.KEY], key_server)


def _plan(folder: str) -> tuple[contract.JobPlan, list[contract.Verdict]]:
    """Return the plan, and the verdicts on the job file that it comes from. Raises UnusableError."""
    from ddplaunch.agent.hub import plan_file

    path = plan_file.find(folder)
    try:
        plan, refused = plan_file.read(path)
    except OSError as error:
        raise UnusableError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UnusableError(f"{path}: {error}") from error
    if plan.version != contract.VERSION:
        raise UnusableError(f"{path} has version {plan.version}, this agent reads {contract.VERSION}")
    return plan, refused


def _number(name: str, default: Optional[int]) -> int:
    value = os.environ.get(name, "")
    if value.isdecimal():
        return int(value)
    if value or default is None:
        raise UnusableError(f"{name} is {value!r}; wanted a number from 0")
    return default
