"""Shows the output of several writers on one of the user's streams: a file, a pipe or a terminal.

A file or a pipe gets the bytes unchanged. On a terminal, when several ranks of this node print, each line
begins with its rank, and the progress bars of all ranks are below the lines, one under another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import stat
import struct
import termios
import time
import unicodedata
from typing import Optional

from ddplaunch.agent.text.lines import PrefixedLines

BACKLOG = 1 << 20
"""Bytes that may wait for a slow reader. Beyond that the command waits for the reader, as it would without
us."""
REFUSED = 10.0
"""Seconds for a full disk to have room again. Then its writers are told (without us: at once)."""
_TERMINAL_GONE = (errno.EIO, errno.EBADF, errno.ENXIO)


class Outlet:
    """Takes everything at once, and writes as much as its reader takes. Never blocks, and never raises
    OSError.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_terminal = os.isatty(descriptor)
        self.broken = False  # nobody reads the pipe any more, and its writers have to learn that
        self.refuses = False  # the last write has failed, for example on a full disk, which may pass
        self.error = ""  # why it failed, and why output is lost if `lost`
        self.lost = 0  # bytes that were given up
        self._refused_at = 0.0
        self.at_line_start = True
        self._given = descriptor
        self._own = _unblocked(descriptor)
        self._waiting = bytearray()
        self._gone = False  # the terminal was closed; the job goes on without it
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLOUT)

    def fileno(self) -> int:
        return self._given if self._own is None else self._own

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) > BACKLOG

    def write(self, data: bytes) -> None:
        """Append `data` to what is waiting, and write as much as the reader takes now."""
        if data and not (self.broken or self._gone):
            self.at_line_start = data.endswith(b"\n")
            self._waiting += data
            self.flush()

    def flush(self, seconds: float = 0.0) -> None:
        """Write as much as the reader takes; wait for it once, for this long."""
        wait = seconds
        while self._waiting and self._poll.poll(wait * 1000):
            wait = 0.0
            # A descriptor that may block takes PIPE_BUF bytes when it is ready.
            size = len(self._waiting) if self._own is not None else select.PIPE_BUF
            try:
                written = os.write(self.fileno(), memoryview(self._waiting)[:size])
            except BlockingIOError:
                return
            except OSError as error:
                self.broken = error.errno == errno.EPIPE
                self._gone = error.errno in _TERMINAL_GONE
                self.refuses = not (self.broken or self._gone)
                if self.refuses:
                    self._refused(error)
                else:
                    self._waiting.clear()
                return
            self.refuses, self._refused_at = False, 0.0
            del self._waiting[:written]

    def _refused(self, error: OSError) -> None:
        now = time.monotonic()
        self._refused_at = self._refused_at or now
        self.error = os.strerror(error.errno or 0)
        # This happens only when the writers wait for room: they would wait for good, and look as if they
        # hang.
        if self.full and (now - self._refused_at > REFUSED or error.errno == errno.EFBIG):
            self.give_up()

    def give_up(self) -> None:
        """Take no more: what is waiting is lost, and its writers learn that at their next write."""
        if self.refuses:
            self.lost += len(self._waiting)
        self.broken = True
        self._waiting.clear()

    def close(self) -> None:
        if self._own is not None and self._own != self._given:
            os.close(self._own)
        self._own = None


def _unblocked(descriptor: int) -> Optional[int]:
    """Return a descriptor of the same stream on which a write never blocks; None if there is none.

    O_NONBLOCK on the user's own descriptor would affect all programs that share it.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            return None
    return None


_REDRAW = 0.1
"""Seconds between two pictures of the bars."""
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_MOVES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-ln-~]")
"""Sequences that move the cursor or erase. Colours, which end in `m`, stay."""


class Writer:
    """The launch command, or one rank. `several`: other ranks of this node print as well."""

    def __init__(self, label: bytes, several: bool = False) -> None:
        self.label = label
        self.several = several


class Display:
    """Shows the bytes as they are."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def feed(self, writer: Writer, data: bytes, now: float) -> None:  # noqa: ARG002 - others need them
        """Show what the writer has printed at `now`, by time.monotonic()."""
        self.outlet.write(data)

    def end(self, writer: Writer) -> None:
        """Note that the writer will print no more."""

    def say(self, lines: bytes) -> None:
        """Show whole lines of our own, each at the beginning of a line."""
        self.outlet.write(lines if self.outlet.at_line_start else b"\n" + lines)

    def tick(self, now: float) -> None:
        """Show what is due by the clock."""

    def close(self) -> None:
        """Show the rest."""


class LineDisplay(Display):
    """Shows whole lines that begin with their writer's name: for users who ask for that."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(outlet)
        self._lines: dict[Writer, PrefixedLines] = {}

    def feed(self, writer: Writer, data: bytes, now: float) -> None:
        lines = self._lines.setdefault(writer, PrefixedLines())
        lines.prefix = writer.label
        self.outlet.write(lines.feed(data, now))

    def end(self, writer: Writer) -> None:
        if writer in self._lines:
            self.outlet.write(self._lines.pop(writer).end())

    def tick(self, now: float) -> None:
        for lines in self._lines.values():
            self.outlet.write(lines.tick(now))

    def close(self) -> None:
        for writer in list(self._lines):
            self.end(writer)


class ScreenDisplay(Display):
    """A terminal: bytes unchanged until several ranks print; then their lines, and their bars below these."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(outlet)
        self._lines: dict[Writer, PrefixedLines] = {}
        self._rows = 0  # rows of bars; the cursor is at the end of the last one
        self._drawn: list[bytes] = []
        self._drawn_at = 0.0

    def feed(self, writer: Writer, data: bytes, now: float) -> None:
        if not writer.several and not any(each.several for each in self._lines):
            self._erase()
            rest = self._lines.pop(writer).partial if writer in self._lines else b""
            self.outlet.write(rest + data)
            return
        lines = self._lines.setdefault(writer, PrefixedLines(writer.label if writer.several else b""))
        self._above(_MOVES.sub(b"", lines.feed(data, now)))
        self.tick(now)

    def end(self, writer: Writer) -> None:
        if writer in self._lines:
            self._above(self._lines.pop(writer).end())
            self._draw()

    def say(self, lines: bytes) -> None:
        self._above(lines)
        self._draw()

    def tick(self, now: float) -> None:
        if now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            self._draw()

    def close(self) -> None:
        for writer in list(self._lines):
            self.end(writer)

    def _above(self, lines: bytes) -> None:
        """Show whole lines in place of the bars."""
        if lines:
            self._erase()
            self.outlet.write(lines if self.outlet.at_line_start else b"\n" + lines)

    def _erase(self) -> None:
        if self._rows:
            up = b"\x1b[%dA" % (self._rows - 1) if self._rows > 1 else b""
            self.outlet.write(b"\r" + up + b"\x1b[J")
            self._rows, self._drawn = 0, []
            self.outlet.at_line_start = True

    def _draw(self) -> None:
        """Show the bars, if they have changed and the terminal accepts them."""
        if not self.outlet.empty:
            return  # a slow terminal gets fewer pictures
        columns, rows = size_of(self.outlet.fileno())
        by_rank = sorted(self._lines.items(), key=lambda item: (len(item[0].label), item[0].label))
        texts = (lines.prefix + lines.partial for _, lines in by_rank if lines.partial.strip())
        bars = [_cut(text, columns - 1) for text in texts]
        most = max(1, rows // 2)
        if len(bars) > most:
            bars = [*bars[: most - 1], _cut(b"... and %d more" % (len(bars) - most + 1), columns - 1)]
        if bars == self._drawn:
            return
        self._erase()
        if bars:
            self.outlet.write((b"" if self.outlet.at_line_start else b"\n") + b"\r\n".join(bars))
            self._rows, self._drawn = len(bars), bars


def display(outlet: Outlet, prefix: Optional[bool], term: str) -> Display:
    """Return the display for an outlet. `prefix`: what the user wants; None: what suits the outlet."""
    if prefix is None and outlet.is_terminal and term not in ("", "dumb"):
        return ScreenDisplay(outlet)
    return LineDisplay(outlet) if prefix else Display(outlet)


def size_of(descriptor: int) -> tuple[int, int]:
    """Return a terminal's columns and rows; 80 and 24 if it does not know them."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        columns, rows = 0, 0
    return columns or 80, rows or 24


def set_size(descriptor: int, columns: int, rows: int) -> None:
    """Set the size of a pseudo terminal."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _cut(text: bytes, columns: int) -> bytes:
    """Return as much as fits into one row, without anything that moves the cursor."""
    shown, width = "", 0
    for letter in _ESCAPES.sub("", text.decode(errors="replace")):
        if not letter.isprintable():
            continue
        wide = unicodedata.east_asian_width(letter) in "WF"
        width += 0 if unicodedata.combining(letter) else 1 + wide
        if width > columns:
            break
        shown += letter
    return shown.encode()
