"""Files of this machine: logs that survive a full disk, files that grow, sources that may change, mounts."""

from __future__ import annotations

import os
import stat
from io import FileIO
from typing import IO, Callable, NamedTuple, Optional, Union

BACKLOG = 1 << 20
"""Bytes that may wait in memory. Beyond that the oldest are lost, and the log says how many."""


class LogFile:
    """Appends to the file at `path`, or to an open descriptor, which stays open.

    `complain` gets one sentence when a write first fails.
    """

    def __init__(self, path: Union[str, int], complain: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._complain = complain
        self._file: Optional[FileIO] = None
        self._waiting = bytearray()
        self._lost = 0
        self._complained = False

    def write(self, data: bytes) -> None:
        """Append `data` after the bytes that are waiting. Never raises OSError."""
        self._waiting += data
        try:
            self._flush()
        except OSError as error:
            self._lost += max(0, len(self._waiting) - BACKLOG)
            del self._waiting[:-BACKLOG]
            if not self._complained:
                self._complained = True
                self._complain(f"cannot write {self._path}: {error.strerror}")

    def close(self) -> None:
        """Write the bytes that are waiting, if there is space, and close the file."""
        self.write(b"")
        if self._file is not None:
            self._file.close()
            self._file = None

    def _flush(self) -> None:
        if self._file is None:
            self._file = FileIO(self._path, "a", closefd=isinstance(self._path, str))
        if self._lost:
            self._waiting[:0] = f"... {self._lost} bytes are missing here: the disk was full\n".encode()
            self._lost = 0
        written: Optional[int] = 1
        while self._waiting and written:  # None if a pipe takes nothing now
            written = self._file.write(self._waiting)
            del self._waiting[: written or 0]


_AT_ONCE = 1 << 20


class FileTail:
    """Reads a file that grows and that may not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Return the whole lines that have been added since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_AT_ONCE)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole) or (len(data) if len(data) == _AT_ONCE else 0)
        return whole.splitlines()


def open_unchanged(path: str, largest: int, unchanged_since: float) -> Optional[IO[bytes]]:
    """Return a regular file of at most `largest` bytes; None if it is not one, or has changed since then.

    Raises OSError if it cannot be opened, and ValueError for an impossible path.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115 - the caller's
    facts = os.fstat(file.fileno())
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= largest and facts.st_mtime <= unchanged_since:
        return file
    file.close()
    return None


class Mount(NamedTuple):
    """One line: `root` is the folder of the file system that is mounted at `point`. See proc(5)."""

    point: str = ""
    root: str = ""
    kind: str = ""
    source: str = ""


def mount_of(text: str, path: str) -> Mount:
    """Return the mount that holds `path`; an empty one if `text` has none."""
    closest = Mount()
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        root, point = (each.replace("\\040", " ") for each in left.split(" ")[3:5])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(closest.point):  # a later mount covers an earlier one
            kind, source = right.split(" ")[:2]
            closest = Mount(point, root, kind, source)
    return closest
