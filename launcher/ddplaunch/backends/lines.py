"""Chooses and orders the lines of a job's output, however the files grow meanwhile."""

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
"""`[node/rank]`, or `[node/ddplaunch]` where the node's supervisor speaks."""
_CHUNK = 1 << 20
_LONGEST = 1 << 20
"""Bytes of a line; a longer one is shown in pieces."""
_POLL = 0.1


class Source(Protocol):
    """Output that grows."""

    def present(self) -> Iterator[bytes]:
        """The whole lines that came since the last look."""

    def rest(self) -> Iterator[bytes]:
        """A last line without its newline."""


def lines(
    source: Source, wanted: Selection, *, follow: bool, alive: Callable[[], bool], poll: float = _POLL
) -> Iterator[str]:
    """The wanted lines that are there, then, with `follow`, those that come while `alive`.

    Yields "" whenever a moment passed without any.
    """
    present: Iterator[bytes] = (line for line in source.present() if is_wanted(line, wanted))
    if wanted.tail is not None:
        present = iter(deque(present, maxlen=wanted.tail))
    yield from map(text, present)
    while follow:
        last_look = not alive()  # asked before the look, so that what is written before the end is seen
        fresh = [line for line in source.present() if is_wanted(line, wanted)]
        yield from map(text, fresh)
        if last_look:
            break
        if not fresh:
            yield ""
            time.sleep(poll)
    yield from map(text, (line for line in source.rest() if is_wanted(line, wanted)))


class File:
    """A file that others append to. It is opened anew at every look, which on NFS is what brings the news."""

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
        """Whole lines of `file`, which is this one, opened. Of a line without end, pieces."""
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
    """Whether the line's prefix suits."""
    if wanted.nodes is None and wanted.ranks is None:
        return True
    match = _PREFIX.match(line)
    if match is None:
        return False
    node, rank = match.groups()
    return (wanted.nodes is None or int(node) in wanted.nodes) and (
        wanted.ranks is None or (rank is not None and rank.isdigit() and int(rank) in wanted.ranks)
    )


def text(line: bytes) -> str:
    """Broken UTF-8 is shown as such, and ends nothing."""
    return line.decode("utf-8", errors="replace")


def last_words(path: Path, count: int) -> list[str]:
    """The last lines of a file that hold anything; none when it is not there."""
    try:
        found = files.tail(path, 8192).splitlines()
    except OSError:
        return []
    return [text(line) for line in islice(filter(bytes.strip, reversed(found)), count)][::-1]
