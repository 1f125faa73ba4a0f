"""`agent.pyz run --join -- COMMAND`: this node's part of the job, with nothing but the agent's archive.

The launcher's own `run --join` prepares the same job, and takes its exit code from here too: on every node it
is the exit code of the node's own command, which a caller would get without us.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent import join
from ddplaunch.agent.contract import (
    OUTPUT_LOST,
    Env,
    Exit,
    Files,
    GatePlan,
    JobPlan,
    LaunchEnd,
    WatchdogPlan,
    codec,
)
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.join import key, spot
from ddplaunch.agent.join.spot import CannotJoinError
from ddplaunch.agent.local import host
from ddplaunch.agent.local.carrier import UserStreams
from ddplaunch.agent.platforms import places, scheduler_variables
from ddplaunch.agent.system import processes
from ddplaunch.agent.system.signals import BySignal
from ddplaunch.agent.text.printable import error_text, printable
from ddplaunch.agent.transport.endpoints import Endpoint, parse


class JoinedJob(NamedTuple):
    """The plan, and this node's own part of it. `key_server`: node 0's arguments for `agent.pyz keys`."""

    plan: JobPlan
    node: int
    environment: dict[str, str]
    key_server: list[str]


def prepare(
    arguments: Namespace,
    command: Sequence[str],
    name: str,
    watchdog: WatchdogPlan,
    environment: Mapping[str, str],
    log: Callable[[str], None],
) -> JoinedJob:
    """Return this node's part. May wait for node 0's key. Raises CannotJoinError and key.NoKeyError."""
    options = spot.Options(arguments.nodes, arguments.node_rank, arguments.master, arguments.port)
    place = spot.find(options, command, environment, _full_name())
    # This does not depend on the key: a node with a wrong key must reach the hub, which reports it.
    port = arguments.gate_port or places.hub_port(name, place.attempt, place.occasion.encode())
    key_port = key.server_port(place, arguments.gate_port, port)
    secret = key.obtain(place, arguments.key_file, key_port, environment, arguments.gate_timeout, log)
    plan = JobPlan(
        job=name,
        nodes=place.nodes,
        nproc_per_node=None,
        launch=[],
        command=list(command),
        names=place.names,
        master_addr=place.master_addr,
        master_port=place.master_port,
        watchdog=watchdog,
        platform=scheduler_variables.platform(environment),
        gate=GatePlan(timeout=arguments.gate_timeout, port=port, joined=True, rdzv_id=place.rdzv_id),
    )
    own = {
        Env.KEY: secret.secret,
        Env.ATTEMPT: str(place.attempt),
        Env.HUB: str(Endpoint(place.master, port)),
    }
    key_server = [] if secret.port is None else ["--port", str(secret.port), "--occasion", place.occasion]
    log(f"node {place.node} of {place.nodes}; node 0 is {place.master}")
    return JoinedJob(plan, place.node, own, key_server)


def _full_name() -> str:
    """Return this pod's full name, POD.SERVICE.NAMESPACE.svc.DOMAIN, from its /etc/hosts."""
    name = socket.gethostname()
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError:
        return name
    return next((each for words in lines for each in words[1:] if each.startswith(f"{name}.")), name)


WITH_OTHERS = 1
"""Exit code of a node whose command was ended because another node failed. torchrun has the same one when it
loses the others, and it is never higher than the failing node's: srun ends with the highest one."""


def exit_code_of(command: Sequence[str], folder: str, node: int, code: int) -> Optional[int]:
    """Return the exit code with which this node's command would have ended without us.

    `code`: the agent's exit code for the job. None: the command was not started, or did not end by itself.
    """
    if code == OUTPUT_LOST:
        return 1
    try:
        end = codec.read(LaunchEnd, os.path.join(folder, Files.NODE.format(node=node), Files.LAUNCH_END))
    except (OSError, codec.ContractError):
        return _unstarted(command) if code == Exit.MISCONFIGURED else None
    if end.dismissed and code not in (Exit.HANG, Exit.STOPPED):
        return WITH_OTHERS  # even if it was too slow to end and had to be killed
    if end.dismissed or end.killed:
        return None
    return end.code if end.code is not None else BySignal(end.signal or 0)


def _unstarted(command: Sequence[str]) -> Optional[int]:
    """Return the exit code of a shell, python or a launcher that cannot find a part of the command."""
    from ddplaunch.agent.checks.command_line import MODULE, PROGRAM, SHELL_SCRIPT, starts

    path = os.environ.get("PATH", os.defpath)
    outer = ""
    for start in starts(command):
        if start.kind == PROGRAM and (refused := processes.refused(start.word, path)):
            return refused
        if start.kind not in (PROGRAM, MODULE) and not os.path.exists(start.word):
            if start.kind == SHELL_SCRIPT:
                return processes.ABSENT
            return 2 if os.path.basename(outer).startswith("python") else 1  # of its ranks
        outer = start.word
    return None


def main(arguments: argparse.Namespace) -> int:
    """Run this node's part. Returns the exit code of its command, or an Exit if that did not end by itself.

    It leaves a folder behind only on node 0 of a job that did not succeed: the folder has the evidence.
    """
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    watchdog = join.watchdog(arguments.notice_after, arguments.kill_after)
    try:
        if not command:
            raise CannotJoinError("nothing to run", "give a command: run --join -- torchrun train.py")
        joined = prepare(arguments, command, arguments.name, watchdog, os.environ, _log)
    except CannotJoinError as error:
        sys.stderr.write(error_text(error))
        return Exit.MISCONFIGURED
    except key.NoKeyError as error:
        print("\n".join(verdict_text.block([error.verdict], final=True)), file=sys.stderr, flush=True)
        return CATALOGUE[error.verdict.code].exit_code
    folder = tempfile.mkdtemp(prefix=f"ddplaunch-{arguments.name}-")
    code: Optional[int] = None
    try:
        code = _run(joined, folder, arguments.prefix)
    finally:
        if code and joined.node == 0:
            _log(f"the evidence is in {os.path.join(folder, Files.RUN)}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def _run(joined: JoinedJob, folder: str, prefix: Optional[bool]) -> int:
    codec.write(os.path.join(folder, Files.PLAN), joined.plan)
    (hub,) = parse(joined.environment[Env.HUB])
    part = host.Part(joined.node, hub, joined.environment[Env.KEY], joined.key_server)
    attempt = int(joined.environment[Env.ATTEMPT])
    code = host.main(joined.plan, folder, attempt, part=part, streams=UserStreams(prefix=prefix))
    own = exit_code_of(joined.plan.command, folder, joined.node, code)
    return code if own is None else own


def keys(port: int, occasion: str) -> int:
    """Serve the key on node 0 as long as the parent lives. Returns an Exit if it cannot listen."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        key.serve_key(port, occasion, os.environ[Env.KEY], _log)
    except OSError as error:
        _log(f"no key can be handed out on port {port}: {error.strerror}; give all nodes another --gate-port")
    return Exit.NODE_AT_FAULT


def _log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {printable(text, lines=True)}", file=sys.stderr, flush=True)
