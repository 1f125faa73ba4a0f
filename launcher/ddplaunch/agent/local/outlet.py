"""One of the user's own streams, to which output is written: a file, a pipe or a terminal."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Optional

BACKLOG = 1 << 20
"""Bytes that wait for a slow reader; beyond, the command waits for it, as it would without us."""
REFUSED = 10.0
"""Seconds for a full disk to have room again; then its writers learn of it (at once without us)."""
_TERMINAL_GONE = (errno.EIO, errno.EBADF, errno.ENXIO)


class Outlet:
    """Takes everything at once, and writes what its reader takes. Never blocks, never raises OSError."""

    def __init__(self, descriptor: int) -> None:
        self.is_terminal = os.isatty(descriptor)
        self.broken = False  # the pipe has no reader any more: its writers are to learn it
        self.refuses = False  # the last write has failed, as on a full disk, which may pass
        self.error = ""  # why it did, and why output is lost if `lost`
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
        """Append `data` to what waits, and write what the reader takes now."""
        if data and not (self.broken or self._gone):
            self.at_line_start = data.endswith(b"\n")
            self._waiting += data
            self.flush()

    def flush(self, seconds: float = 0.0) -> None:
        """Write what the reader takes, waiting for it once for so long."""
        wait = seconds
        while self._waiting and self._poll.poll(wait * 1000):
            wait = 0.0
            # A descriptor that may block takes PIPE_BUF bytes once it is ready.
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
        # Only once the writers wait for room: they would wait for good, and look like a hang.
        if self.full and (now - self._refused_at > REFUSED or error.errno == errno.EFBIG):
            self.give_up()

    def give_up(self) -> None:
        """Take no more: what waits is lost, and its writers learn it at their next write."""
        if self.refuses:
            self.lost += len(self._waiting)
        self.broken = True
        self._waiting.clear()

    def close(self) -> None:
        if self._own is not None and self._own != self._given:
            os.close(self._own)
        self._own = None


def _unblocked(descriptor: int) -> Optional[int]:
    """Return a descriptor of the same stream on which a write never blocks; None where there is none.

    O_NONBLOCK on the user's own would be there for all programs that share it.
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
