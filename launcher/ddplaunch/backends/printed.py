"""The bundle that a hub prints at its end, for when its log is all that is left."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends import files

BEGIN = "-----BEGIN DDPLAUNCH BUNDLE-----"
END = "-----END DDPLAUNCH BUNDLE-----"


def bundle(lines: Iterable[str]) -> Bundle | None:
    """The last one that is whole."""
    found: Bundle | None = None
    block: list[str] | None = None
    size = 0
    for line in lines:
        text = line.strip()
        if text == BEGIN:
            block, size = [], 0
        elif text == END and block is not None:
            found, block = _unpacked("".join(block)) or found, None
        elif block is not None:
            size += len(text)
            if size > files.MAX_BYTES:
                block = None
            else:
                block.append(text)
    return found


def _unpacked(text: str) -> Bundle | None:
    try:
        return files.load(Bundle, files.inflate(base64.b64decode(text, validate=True)))
    except ValueError:  # a ContractError is one
        return None
