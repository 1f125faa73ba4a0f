"""Turns log files into prefixed lines: one reader per file, one console for all.

Ranks write to files, not to pipes: a file never blocks a rank, loses no text when a process dies, and is read
no faster than our own output.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import sys
import time
from typing import Callable, Optional

from ddplaunch.agent.contract import Raised
from ddplaunch.agent.evidence.tracebacks import STARTS, Tracebacks
from ddplaunch.agent.text.lines import PARTIAL_EVERY, LineSplitter, final
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor

_CHUNK = 256 * 1024
_BACKLOG = 1 << 20
"""Bytes waiting for a slow console; beyond, the files wait."""
_NATIVE_LOG = re.compile(rb"\s*\[?[WEI]\d{4} |\s*\[W")
"""torch's own warnings repeat while it waits: they are no progress."""
_NO_READER = (errno.EPIPE, errno.EBADF, errno.EIO)  # EIO: the terminal is gone


class Console:
    """Our standard output. Never blocks, never fails: a reader that is slow or gone must not stop the job.

    Output of ranks passes unchanged. Lines of our own are without secrets (`redactor`) and control
    characters.
    """

    def __init__(self, descriptor: int, redactor: Redactor = NO_SECRETS) -> None:
        self._redactor = redactor
        self._descriptor: Optional[int] = descriptor
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, prefix: bytes, lines: list[bytes]) -> None:
        if lines:
            self._waiting += b"".join([prefix + line + b"\n" for line in lines])
            self.flush()

    def log(self, label: str, text: str) -> None:
        """Print lines of our own, or of the launch command."""
        shown = printable(self._redactor.hide(text), lines=True)
        self.write(f"[{label}] ".encode(), shown.encode().split(b"\n"))

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def full(self) -> bool:
        return len(self._waiting) > _BACKLOG

    def flush(self, patience: float = 0.0) -> None:
        """Write as much as the reader takes within `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._waiting and self._descriptor is not None:
            wait = max(0.0, deadline - time.monotonic())
            if not self._poll.poll(wait * 1000):
                return
            # A ready pipe takes PIPE_BUF bytes at once, and does not mix them with those of other writers.
            piece = self._waiting[: select.PIPE_BUF]
            end = piece.rfind(b"\n") + 1 or len(piece)
            try:
                written = os.write(self._descriptor, piece[:end])
            except OSError as error:
                if error.errno in _NO_READER:
                    self._descriptor = None
                    break
                return  # it takes no data now, or its disk is full, which may pass
            del self._waiting[:written]
        if self._descriptor is None:
            self._waiting.clear()


class Tail:
    """Follows one file from its beginning to its end."""

    def __init__(self, path: str, shown: bool = True) -> None:
        self.path = path
        self.shown = shown
        self.has_more = False  # it was not read to its end
        self.last_line = ""
        self.raised: list[Raised] = []  # cleared by the reader
        self._file: Optional[int] = None
        self._offset = 0
        self._limit = sys.maxsize
        self._lines = LineSplitter()
        self._tracebacks = Tracebacks()
        self._partial_since = 0.0
        self._partial_shown = b""
        self.kept: list[bytes] = []  # the last lines
        self.fresh: list[bytes] = []  # the new ones of these; cleared by the reader

    def mark(self) -> None:
        """Read no further than to the present end until marked again: later lines may be another's."""
        with contextlib.suppress(OSError):
            self._limit = os.stat(self.path).st_size

    def read(self, write: Callable[[list[bytes]], None], keep: int = 1) -> bool:
        """Read at most one chunk. Returns whether it has anything new."""
        data = self._data()
        if not data:
            self._show_partial(write)
            return False
        was_open = bool(self._lines.partial)
        lines = self._lines.feed(data)
        if lines or not was_open:
            self._partial_since, self._partial_shown = time.monotonic(), b""
        is_new = self._take(lines, write, keep)
        self._show_partial(write)
        return self._remember(final(self._lines.partial)) or is_new

    def close(self, write: Callable[[list[bytes]], None], keep: int = 1) -> None:
        """Read to the end, and close the file."""
        self._limit = sys.maxsize
        data = self._data()
        while data:
            self._take(self._lines.feed(data), write, keep)
            data = self._data()
        rest = self._lines.flush()
        self.shown = self.shown and rest != [self._partial_shown]
        self._take(rest, write, keep)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _data(self) -> bytes:
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            size = max(0, min(_CHUNK, self._limit - self._offset))
            data = os.read(self._file, size)
            self._offset += len(data)
            self.has_more = len(data) == _CHUNK
            return data
        return b""

    def _take(self, lines: list[bytes], write: Callable[[list[bytes]], None], keep: int) -> bool:
        if not lines:
            return False
        if self.shown:
            write(lines)
        self._find_tracebacks(lines)
        self.kept = (self.kept + lines[-keep:])[-keep:]
        self.fresh = (self.fresh + lines[-keep:])[-keep:]
        last = next((line for line in reversed(lines) if line.strip()), b"")
        return self._remember(last) and not all(map(_NATIVE_LOG.match, lines))

    def _remember(self, line: bytes) -> bool:
        text = line.decode(errors="replace").strip()[:500]
        if not text or text == self.last_line:
            return False
        self.last_line = text
        return True

    def _find_tracebacks(self, lines: list[bytes]) -> None:
        # One search of all of them: a rank may print a hundred megabytes a second.
        together = b"\n".join(lines)
        if not self._tracebacks.reading and not any(start in together for start in STARTS):
            return
        now = time.time()
        for line in lines:
            raised = self._tracebacks.feed(line.decode(errors="replace"), now)
            if raised is not None:
                self.raised.append(raised)

    def _show_partial(self, write: Callable[[list[bytes]], None]) -> None:
        """Show a line without its end, such as a progress bar, every PARTIAL_EVERY seconds."""
        if not self._lines.partial or time.monotonic() - self._partial_since < PARTIAL_EVERY:
            return
        self._partial_since = time.monotonic()
        text = final(self._lines.partial)
        if text.strip() and text != self._partial_shown and self.shown:
            self._partial_shown = text
            write([text])
