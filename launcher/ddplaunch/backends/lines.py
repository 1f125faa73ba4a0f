"""Selects lines from a job's output, and follows output that grows. The backends call it for `logs`."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

from ddplaunch.backends import files
from ddplaunch.backends.job import Selection

_PREFIX = re.compile(rb"\[(\d+)(?:/(\w+))?\]")
"""`[node/rank]`, or `[node/ddplaunch]` for a line of the node's supervisor."""
_REMARK = b"[ddplaunch] "
"""Begins a remark about the output as a whole."""
_CHUNK = 1 << 20
_LONGEST = 1 << 20
"""Bytes in a line; a longer one is shown in pieces."""
_POLL = 0.1


class LogSource(Protocol):
    """Output that grows."""

    def present(self) -> Iterator[bytes]:
        """Yield the whole lines that have come since the last call."""

    def rest(self) -> Iterator[bytes]:
        """Yield a last line that has no newline."""


def lines(
    source: LogSource, wanted: Selection, *, follow: bool, alive: Callable[[], bool], poll: float = _POLL
) -> Iterator[str]:
    """Yield the wanted lines that are there; with `follow`, then also those that come while `alive`.

    Yields "" after each pause of `poll` seconds without a line.
    """
    present: Iterator[bytes] = (line for line in source.present() if is_wanted(line, wanted))
    if wanted.tail is not None:
        present = iter(deque(present, maxlen=wanted.tail))
    yield from map(text, present)
    while follow:
        ended = not alive()  # asked before the read, so that this sees all that was written before the end
        fresh = [line for line in source.present() if is_wanted(line, wanted)]
        yield from map(text, fresh)
        if ended:
            break
        if not fresh:
            yield ""
            time.sleep(poll)
    yield from map(text, (line for line in source.rest() if is_wanted(line, wanted)))


class GrowingFile:
    """A file to which others append. Each read opens it again: on NFS, only that shows what was appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._begun = b""

    def present(self) -> Iterator[bytes]:
        try:
            with files.opened(self.path) as file:
                yield from self.read(file)
        except (FileNotFoundError, files.NotPlainError):
            pass

    def read(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the new whole lines of `file`, which is this file, opened. A very long line comes in
        pieces.
        """
        file.seek(self._offset)
        while data := file.read(_CHUNK):
            self._offset += len(data)
            *whole, self._begun = (self._begun + data).split(b"\n")
            yield from whole
            if len(self._begun) >= _LONGEST:
                yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        if self._begun:
            yield self._begun
        self._begun = b""


def is_wanted(line: bytes, wanted: Selection) -> bool:
    """Whether the prefix of `line` names a wanted node and rank, or the line is a remark about all of
    them.
    """
    if (wanted.nodes is None and wanted.ranks is None) or line.startswith(_REMARK):
        return True
    match = _PREFIX.match(line)
    if match is None:
        return False
    node, rank = match.groups()
    return (wanted.nodes is None or int(node) in wanted.nodes) and (
        wanted.ranks is None or (rank is not None and rank.isdigit() and int(rank) in wanted.ranks)
    )


def text(line: bytes) -> str:
    """Return the line as text. Each broken byte becomes a replacement character."""
    return line.decode("utf-8", errors="replace")


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, `count` at most, without empty ones; none if the file is not there."""
    try:
        last = files.tail(path, 8192).splitlines()
    except OSError:
        return []
    return [text(line) for line in islice(filter(bytes.strip, reversed(last)), count)][::-1]
