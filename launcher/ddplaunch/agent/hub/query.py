"""Sends one request to the hub of a running job, from any process that knows its key."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Union

from ddplaunch.agent.contract import Env, Exit, Files, JobStatus, codec, messages
from ddplaunch.agent.contract.messages import (
    AskDiagnosis,
    AskStatus,
    BundleAnswer,
    Ending,
    Message,
    StatusAnswer,
    Stop,
    Way,
)
from ddplaunch.agent.hub import plan_file
from ddplaunch.agent.platforms import places
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.protocol import Channel, LostError, ProtocolError

SECONDS = 30.0
"""Seconds for the whole answer. Fresh evidence from all ranks may take a few."""
_CALL = 3.0
"""Seconds for one address: the next one may answer."""


def main(folder: str, what: str, why: str) -> int:
    """Send the request `what`: `status` prints JSON, `diagnose` the bundle; the others wait for the hub.

    Key and address come from the environment, or from the hub's files in `folder`. Returns an exit code; if
    no hub answers it prints an error and returns `Exit.UNUSABLE`.
    """
    deadline = time.monotonic() + SECONDS
    try:
        channel = _connect(folder, deadline)
        try:
            answer = _converse(channel, what, why, deadline)
        finally:
            channel.close()
    except (OSError, ValueError, ProtocolError, places.UnplacedError) as error:
        text = f"error: the hub of the job in {folder} does not answer: {error}"
        sys.stderr.write(printable(text) + "\n")
        return Exit.UNUSABLE
    if what in ("status", "diagnose"):
        print(answer.archive if isinstance(answer, BundleAnswer) else json.dumps(codec.dump(answer.status)))
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
    """Return the hub's addresses: from its own file if there is one, otherwise from the plan.

    Raises OSError, ContractError or `places.UnplacedError`.
    """
    if os.path.exists(os.path.join(folder, Files.HUB_ADDRESS)):
        return endpoints.parse(_read(folder, Files.HUB_ADDRESS))
    plan, _ = plan_file.read(plan_file.find(folder))
    return places.hub(plan, int(os.environ.get(Env.ATTEMPT) or 0), key, os.environ)


def _converse(channel: Channel, what: str, why: str, deadline: float) -> Union[StatusAnswer, BundleAnswer]:
    requests: dict[str, list[Message]] = {
        "status": [AskStatus()],
        "diagnose": [AskDiagnosis()],
        "stop": [Stop(why), AskStatus()],  # its answer shows that the hub has read the stop
        "ending": [Ending(why)],
    }
    for question in requests[what]:
        channel.send(*question.pack())
    while time.monotonic() < deadline:
        received = channel.receive(deadline - time.monotonic())
        answer = None if received is None else messages.load(*received, Way.HUB_TO_COMMAND)
        if isinstance(answer, (StatusAnswer, BundleAnswer)):
            return answer
    raise LostError(f"no answer in {SECONDS:.0f} s")


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read().strip()
