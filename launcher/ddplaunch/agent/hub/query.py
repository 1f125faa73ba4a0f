"""Sends one request to the hub of a running job, from any process that knows its key."""

from __future__ import annotations

import json
import os
import sys
import time

from ddplaunch.agent.contract import Env, Exit, Files, JobPlan, JobStatus, codec
from ddplaunch.agent.platforms import places
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.protocol import Body, Channel, LostError, ProtocolError

SECONDS = 30.0
"""For the whole answer. Fresh evidence of all ranks may take a few."""
_CALL = 3.0
"""For one address: the next may answer."""
_ANSWERS = {"status": "status", "diagnose": "bundle", "stop": "status", "ending": "bundle"}


def main(folder: str, what: str, why: str) -> int:
    """`status` and `diagnose` print JSON; `stop` and `ending` return when the hub has done it.

    The key comes from the environment, the address from what the hub left in `folder`, or the other. Returns
    `Exit.UNUSABLE`, having said why, when no hub answers.
    """
    deadline = time.monotonic() + SECONDS
    try:
        channel = _connect(folder, deadline)
        try:
            body = _converse(channel, what, why, deadline)
        finally:
            channel.close()
    except (OSError, ValueError, ProtocolError, places.UnplacedError) as error:
        text = f"error: the hub of the job in {folder} does not answer: {error}"
        sys.stderr.write(printable(text) + "\n")
        return Exit.UNUSABLE
    if what in ("status", "diagnose"):
        print(json.dumps(body))
    return Exit.OK


def _connect(folder: str, deadline: float) -> Channel:
    key = (os.environ.get(Env.KEY) or os.environ.get(Env.UID) or _read(folder, Files.KEY)).encode()
    where = _where(folder, key)
    status = os.path.join(folder, Files.STATUS)
    attempt = int(os.environ.get(Env.ATTEMPT) or codec.read(JobStatus, status).attempt)
    failures = []
    for host, port in where:
        try:
            return Channel.connect(host, port, key, attempt, min(deadline, time.monotonic() + _CALL))
        except ProtocolError as error:
            failures.append(f"{host} port {port}: {error}")
    raise ProtocolError("; ".join(failures))


def _where(folder: str, key: bytes) -> list[endpoints.Endpoint]:
    """Return the hub's addresses: its own words where its files are, elsewhere what the nodes were told."""
    if os.path.exists(os.path.join(folder, Files.HUB_ADDRESS)):
        return endpoints.parse(_read(folder, Files.HUB_ADDRESS))
    plan = codec.read(JobPlan, os.path.join(folder, Files.PLAN))
    return places.hub(plan, int(os.environ.get(Env.ATTEMPT) or 0), key, os.environ)


def _converse(channel: Channel, what: str, why: str, deadline: float) -> Body:
    channel.send(what, {"why": why} if why else {})
    if what == "stop":
        channel.send("status", {})  # its answer comes after the stop was heard
    while time.monotonic() < deadline:
        message = channel.receive(deadline - time.monotonic())
        if message is not None and message[0] == _ANSWERS[what]:
            return message[1]
    raise LostError(f"no answer in {SECONDS:.0f} s")


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read().strip()
