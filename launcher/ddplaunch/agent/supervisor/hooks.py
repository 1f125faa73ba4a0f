"""The supervisor's socket for the ranks' hooks, open to our own user alone."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any, Callable, Optional

_CHUNK = 1 << 18
_LIMIT = 16 << 20
"""Bytes of the longest answer: a full flight recorder of one backend is 1 MiB."""
_CONNECTIONS = 4096

Answer = dict[str, Any]


class Line:
    """One process that has the hook."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid  # as the kernel tells it: a container may count differently
        self.role = ""  # "rank" | "any" | "child" | "keeper", once it said hello
        self.child: Optional[int] = None  # the rank's pid, as its keeper tells
        self.mpi_ready = False  # MPI was initialized, and not finalized, when it was last asked
        self.told = False  # a keeper was told to end its rank
        self.rank: Optional[int] = None
        self.local_rank: Optional[int] = None
        self.world_size: Optional[int] = None
        self.fault_file = ""  # where faulthandler writes when signalled
        self.ring_file = ""  # where it keeps its last calls of torch.distributed, once there are any
        self.python = ""
        self.ending = 0.0  # since when its interpreter ends by itself, by the wall clock; 0: it does not
        self.open = True
        self.asked: Optional[bytes] = None  # the word that is not answered yet
        self.asked_at = 0.0
        self.answer: Optional[Answer] = None  # the latest
        self.buffer = bytearray()

    def ask(self, word: bytes) -> None:
        """Ask, unless an earlier word is still open: a process that cannot answer is not asked again."""
        if self.open and not self.ending and self.asked is None and self.role:
            self.answer, self.asked, self.asked_at = None, word, time.monotonic()
            self.send(word)

    def send(self, word: bytes) -> None:
        try:
            self.connection.send(word + b"\n")
        except OSError:
            self.open = False

    @property
    def silent_for(self) -> float:
        """Seconds since it owes an answer."""
        return 0.0 if self.asked is None else time.monotonic() - self.asked_at


class Hooks:
    """Connections to the hooks of this node. `heard` gets every message that is not an answer."""

    def __init__(self, heard: Callable[[Line, Answer], None]) -> None:
        self.name = f"ddplaunch-{os.getpid()}-{os.urandom(8).hex()}"
        self.lines: dict[int, Line] = {}  # by pid
        self._heard = heard
        self._selector = selectors.EpollSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.name)
        self._listener.listen(_CONNECTIONS)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Readable when something was said. An epoll descriptor, which another selector can wait for."""
        return self._selector.fileno()

    def listen(self, timeout: float = 0.0) -> None:
        """Read what was said by now, or within `timeout`."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._read(key.data)

    def gather(
        self, lines: Iterable[Line], word: bytes, deadline: float, meanwhile: Callable[[], None]
    ) -> None:
        """Ask all at once; wait until each has answered or is gone, or time.monotonic() is `deadline`."""
        asked = list(lines)
        for line in asked:
            line.ask(word)
        while any(line.open and line.asked == word for line in asked):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.listen(min(left, 0.02))
            meanwhile()

    def close(self) -> None:
        for line in list(self.lines.values()):
            self._drop(line)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            pid, user, _ = struct.unpack("3i", credentials)
            if user != os.getuid():
                connection.close()
                continue
            connection.setblocking(False)
            line = self.lines[pid] = Line(connection, pid)
            self._selector.register(connection, selectors.EVENT_READ, line)
            self._read(line)

    def _read(self, line: Line) -> None:
        try:
            data = line.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        line.buffer += data
        *whole, rest = line.buffer.split(b"\n")
        line.buffer = rest
        for text in whole:
            self._message(line, text)
        if not data or len(rest) > _LIMIT:
            self._drop(line)

    def _message(self, line: Line, text: bytearray) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        if "mpi" in message:
            line.mpi_ready = bool(message["mpi"]["ready"])
        if "is" in message:
            line.answer, line.asked = message, None
            return
        line.fault_file = message.get("fault") or line.fault_file
        if "hello" in message:
            line.role, line.python = message["hello"], message.get("python", "")
            line.ring_file = message.get("ring", "")
            line.rank, line.local_rank = _number(message.get("rank")), _number(message.get("local_rank"))
            line.world_size = _number(message.get("world_size"))
            line.child = message.get("child")
        line.told = line.told or "told" in message
        line.ending = line.ending or float(message.get("ending", 0))
        self._heard(line, message)

    def _drop(self, line: Line) -> None:
        line.open = False
        self._selector.unregister(line.connection)
        line.connection.close()
        if self.lines.get(line.pid) is line:
            del self.lines[line.pid]


def _number(value: Any) -> Optional[int]:
    return int(value) if isinstance(value, str) and value.isdecimal() else None
