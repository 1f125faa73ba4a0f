"""Ask the hub of a running local job: its address and key lie in the job's folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Bundle, Files
from ddplaunch.agent.protocol import Channel, ProtocolError

ANSWER = 30.0
"""Seconds for fresh evidence of all ranks; the hub itself gives them less."""


def diagnose(folder: Path, attempt: int) -> Bundle | None:
    """Evidence of all ranks as they stand now. None when the hub does not answer, or has ended meanwhile."""
    deadline = time.monotonic() + ANSWER
    try:
        address: dict[str, Any] = json.loads((folder / Files.HUB).read_text("utf-8"))
        key = (folder / Files.KEY).read_text("ascii").strip().encode()
        channel = Channel.connect(address["host"], address["port"], key, attempt, deadline)
    except (OSError, ValueError, KeyError, ProtocolError):
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
