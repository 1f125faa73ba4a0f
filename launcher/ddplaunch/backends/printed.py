"""Finds the bundle in a hub's log: it prints one at its end, in case the log is all that is left."""

from __future__ import annotations

from collections.abc import Iterable

from ddplaunch.agent.contract import Bundle, Marks, codec
from ddplaunch.backends import files


def bundle(lines: Iterable[str]) -> Bundle | None:
    """Return the last whole bundle in these lines; None: there is none."""
    found: Bundle | None = None
    block: list[str] | None = None
    size = 0
    for line in lines:
        text = line.strip()
        if text == Marks.BUNDLE:
            block, size = [], 0
        elif text == Marks.BUNDLE_END and block is not None:
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
        return files.bundle(text)
    except codec.ContractError:
        return None
