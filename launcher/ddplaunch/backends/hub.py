"""Asks the hub of a running job for evidence, with the address and the key in the job's folder."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files, codec, messages
from ddplaunch.agent.contract.messages import Way
from ddplaunch.agent.transport.protocol import Channel, ProtocolError
from ddplaunch.backends import files

ANSWER = 30.0
"""Seconds for new evidence of all ranks. The hub itself waits less for them."""
_REACH = 5.0
"""Seconds to connect to one of several addresses: from outside a cluster's network most cannot be reached."""

_SHORT = 1 << 16
"""The most bytes in a file with a key, or with a machine's addresses, of which there are few."""

Address = tuple[str, int]


def diagnose(folder: Path, attempt: int) -> Bundle | None:
    """Return new evidence of all ranks; None if the hub does not answer or has ended."""
    try:
        key = files.contents(folder / Files.KEY, _SHORT).strip()
    except (OSError, ValueError):
        return None
    deadline = time.monotonic() + ANSWER
    channel = _connect(_addresses(folder), key, attempt, deadline)
    if channel is None:
        return None
    try:
        channel.send(*messages.AskDiagnosis().pack())
        while line := channel.receive(deadline - time.monotonic()):
            answer = messages.load(*line, Way.HUB_TO_COMMAND)
            if isinstance(answer, messages.BundleAnswer):
                return answer.bundle or files.bundle(answer.archive)
    except (ProtocolError, codec.ContractError):
        return None
    finally:
        channel.close()
    return None


def _connect(addresses: Iterable[Address], key: bytes, attempt: int, deadline: float) -> Channel | None:
    """Return a connection to the first address at which this job's hub answers; None if there is none."""
    for host, port in addresses:
        try:
            return Channel.connect(host, port, key, attempt, min(deadline, time.monotonic() + _REACH))
        except ProtocolError:
            continue
    return None


def _addresses(folder: Path) -> list[Address]:
    """Return the hub's addresses. On a cluster the hub writes a list of them, on one machine a single one."""
    try:
        text = files.contents(folder / Files.HUB_ADDRESS, _SHORT).decode("ascii")
        parts = [each.rpartition(":") for each in text.split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in parts]
    except (OSError, ValueError):
        pass
    try:
        address = files.parse(files.contents(folder / Files.HUB, _SHORT))
        return [(str(address["host"]), int(address["port"]))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
