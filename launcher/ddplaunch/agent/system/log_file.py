"""A log that survives a full disk: lines wait in memory, and are written once there is space."""

from __future__ import annotations

from io import FileIO
from typing import Callable, Optional, Union

BACKLOG = 1 << 20
"""Bytes that wait in memory. Beyond, the oldest are lost, and the log has their number."""


class LogFile:
    """Appends to the file at `path`, or to an open descriptor, which stays open.

    `complain` gets one sentence when the first write fails.
    """

    def __init__(self, path: Union[str, int], complain: Callable[[str], None] = lambda _: None) -> None:
        self._path = path
        self._complain = complain
        self._file: Optional[FileIO] = None
        self._waiting = bytearray()
        self._lost = 0
        self._complained = False

    def write(self, data: bytes) -> None:
        """Append `data` after the bytes that wait. Never raises OSError."""
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
        """Write the bytes that wait, if there is space, and close the file."""
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
        while self._waiting and written:  # None where a pipe takes nothing now
            written = self._file.write(self._waiting)
            del self._waiting[: written or 0]
