"""`agent.pyz run --join -- COMMAND`: this node's part of the job, with the agent's archive alone."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from typing import Optional

from ddplaunch.agent.contract import Env, Exit, Files, WatchdogPlan, codec
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.join import munge, options, outcome
from ddplaunch.agent.join.prepare import JoinedJob, prepare
from ddplaunch.agent.join.spot import CannotJoinError
from ddplaunch.agent.local import host
from ddplaunch.agent.local.carrier import UserStreams
from ddplaunch.agent.text.printable import error_text, printable
from ddplaunch.agent.transport.endpoints import parse


def main(arguments: argparse.Namespace) -> int:
    """Run this node's part. Returns the exit code of its command; an Exit where that did not end by itself.

    Leaves a folder behind only on node 0 of a job that did not succeed: it has the evidence.
    """
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    watchdog = WatchdogPlan(arguments.notice_after, patient=True)
    if arguments.kill_after != options.AUTO:
        watchdog = WatchdogPlan(arguments.notice_after, arguments.kill_after)
    try:
        if not command:
            raise CannotJoinError("nothing to run", "give a command: run --join -- torchrun train.py")
        joined = prepare(arguments, command, arguments.name, watchdog, os.environ, _log)
    except CannotJoinError as error:
        sys.stderr.write(error_text(error))
        return Exit.MISCONFIGURED
    except munge.NoKeyError as error:
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
    own = outcome.of_command(joined.plan.command, folder, joined.node, code)
    return code if own is None else own


def keys(port: int, occasion: str) -> int:
    """Serve the key on node 0 while the parent lives. Returns an Exit when it cannot listen."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        munge.serve(port, occasion, os.environ[Env.KEY], _log)
    except OSError as error:
        _log(f"no key can be handed out on port {port}: {error.strerror}; give all nodes another --gate-port")
    return Exit.NODE_AT_FAULT


def _log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {printable(text, lines=True)}", file=sys.stderr, flush=True)
