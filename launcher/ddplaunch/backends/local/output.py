"""A local job's output: lines of the file its host writes, one attempt after the other."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ddplaunch.agent.contract import Files
from ddplaunch.backends.job import Selection

_PREFIX = re.compile(rb"\[(\d+)(?:/(\w+))?\]")
"""`[node/rank]`, or `[node/ddplaunch]` where the node's supervisor speaks."""
_CHUNK = 1 << 20
_POLL = 0.1


def attempts(folder: Path) -> list[Path]:
    """The `run` folders of a job, the oldest attempt first; all but the last have been moved aside."""
    earlier = [path for path in folder.glob(f"{Files.RUN}-*") if path.name.rpartition("-")[2].isdigit()]
    return [*sorted(earlier, key=lambda path: int(path.name.rpartition("-")[2])), folder / Files.RUN]


def lines(folder: Path, wanted: Selection, *, follow: bool, alive: Callable[[], bool]) -> Iterator[str]:
    """The wanted lines that are there, then, with `follow`, those that come while `alive`.

    Yields "" whenever a moment passed without any.
    """
    reader = _Reader(folder)
    present: Iterator[bytes] = (line for line in reader.present() if _is_wanted(line, wanted))
    if wanted.tail is not None:
        present = iter(deque(present, maxlen=wanted.tail))
    yield from map(_text, present)
    while follow:
        last_look = not alive()  # asked before the look, so that what is written before the end is seen
        fresh = [line for line in reader.present() if _is_wanted(line, wanted)]
        yield from map(_text, fresh)
        if last_look:
            break
        if not fresh:
            yield ""
            time.sleep(_POLL)
    yield from map(_text, (line for line in reader.rest() if _is_wanted(line, wanted)))


class _Reader:
    """Whole lines of output.log, from where the last look ended, of one attempt after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self.offset = 0
        self.begun = b""

    def present(self) -> Iterator[bytes]:
        while True:
            runs = attempts(self.folder)
            try:
                with (runs[self.attempt] / Path(Files.OUTPUT).name).open("rb") as file:
                    if len(attempts(self.folder)) != len(runs):
                        continue  # moved aside between the two looks: this may be the next attempt's file
                    yield from self._lines(file)
            except FileNotFoundError:
                pass
            if self.attempt == len(runs) - 1:
                return
            yield from self.rest()
            self.attempt += 1
            self.offset = 0

    def rest(self) -> Iterator[bytes]:
        """A last line without its newline."""
        if self.begun:
            yield self.begun
        self.begun = b""

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        file.seek(self.offset)
        while data := file.read(_CHUNK):
            self.offset += len(data)
            *whole, self.begun = (self.begun + data).split(b"\n")
            yield from whole


def _is_wanted(line: bytes, wanted: Selection) -> bool:
    if wanted.nodes is None and wanted.ranks is None:
        return True
    match = _PREFIX.match(line)
    if match is None:
        return False
    node, rank = match.groups()
    return (wanted.nodes is None or int(node) in wanted.nodes) and (
        wanted.ranks is None or (rank is not None and rank.isdigit() and int(rank) in wanted.ranks)
    )


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def last_words(path: Path, count: int) -> list[str]:
    """The last lines of a file that hold anything; none when it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            found = file.read().splitlines()
    except OSError:
        return []
    return [_text(line) for line in islice(filter(bytes.strip, reversed(found)), count)][::-1]
