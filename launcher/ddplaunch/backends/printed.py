"""The bundle that a hub prints at its end, for when its log is all that is left."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Bundle

BEGIN = "-----BEGIN DDPLAUNCH BUNDLE-----"
END = "-----END DDPLAUNCH BUNDLE-----"


def bundle(lines: Iterable[str]) -> Bundle | None:
    """The last one that is whole."""
    found: Bundle | None = None
    block: list[str] | None = None
    for line in lines:
        text = line.strip()
        if text == BEGIN:
            block = []
        elif text == END and block is not None:
            found, block = _unpacked("".join(block)) or found, None
        elif block is not None:
            block.append(text)
    return found


def _unpacked(text: str) -> Bundle | None:
    try:
        return codec.load(Bundle, json.loads(zlib.decompress(base64.b64decode(text, validate=True))))
    except (ValueError, zlib.error, codec.ContractError):
        return None
