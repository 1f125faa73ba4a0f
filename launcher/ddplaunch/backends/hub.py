"""Ask the hub of a running job: its address and key lie in the job's folder."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files, codec
from ddplaunch.agent.transport.protocol import Channel, ProtocolError
from ddplaunch.backends import files

ANSWER = 30.0
"""Seconds for fresh evidence of all ranks; the hub itself gives them less."""
_REACH = 5.0
"""Seconds for one of several addresses: from outside a cluster's network most of them lead nowhere."""

_SHORT = 1 << 16
"""Bytes of a file with a key or addresses; a machine has a few of these."""

Address = tuple[str, int]


def diagnose(folder: Path, attempt: int) -> Bundle | None:
    """Evidence of all ranks as they stand now. None when the hub does not answer, or has ended meanwhile."""
    try:
        key = files.contents(folder / Files.KEY, _SHORT).strip()
    except (OSError, ValueError):
        return None
    deadline = time.monotonic() + ANSWER
    channel = _connect(_addresses(folder), key, attempt, deadline)
    if channel is None:
        return None
    try:
        channel.send("diagnose", {})
        while answer := channel.receive(deadline - time.monotonic()):
            kind, body = answer
            if kind == "bundle":
                return codec.load(Bundle, body)
    except (ProtocolError, codec.ContractError):
        return None
    finally:
        channel.close()
    return None


def _connect(addresses: Iterable[Address], key: bytes, attempt: int, deadline: float) -> Channel | None:
    """Connect to the first address that proves to be this job's hub; None: none does."""
    for host, port in addresses:
        try:
            return Channel.connect(host, port, key, attempt, min(deadline, time.monotonic() + _REACH))
        except ProtocolError:
            continue
    return None


def _addresses(folder: Path) -> list[Address]:
    """Return all that the hub is known by: on a cluster it writes a list, on one machine it has the one."""
    try:
        text = files.contents(folder / Files.HUB_ADDRESS, _SHORT).decode("ascii")
        found = [each.rpartition(":") for each in text.split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in found]
    except (OSError, ValueError):
        pass
    try:
        told = files.parse(files.contents(folder / Files.HUB, _SHORT))
        return [(str(told["host"]), int(told["port"]))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
