"""Finds bundles in a hub's log: it prints one at the end, in case the log is all that is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddplaunch.agent.contract import Bundle, Marks, codec
from ddplaunch.backends import files


def bundle(lines: Iterable[str]) -> Bundle | None:
    """Return the last whole bundle in these lines; None: there is none."""
    return next(reversed(list(bundles(lines))), None)


def bundles(lines: Iterable[str]) -> Iterator[Bundle]:
    """Yield the whole bundles in these lines, one for each attempt that the hub has seen."""
    block: list[str] | None = None
    size = 0
    for line in lines:
        text = line.strip()
        if text == Marks.BUNDLE:
            block, size = [], 0
        elif text == Marks.BUNDLE_END and block is not None:
            found, block = _unpacked("".join(block)), None
            if found is not None:
                yield found
        elif block is not None:
            size += len(text)
            if size > files.MAX_BYTES:
                block = None
            else:
                block.append(text)


def _unpacked(text: str) -> Bundle | None:
    try:
        return files.bundle(text)
    except codec.ContractError:
        return None
