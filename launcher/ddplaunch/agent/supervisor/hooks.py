"""The supervisor's socket for the ranks' hooks, open only to our own user.

`supervisor` and `collector` ask through it. A process that does not answer must not hold them up.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Iterable
from typing import Any, Callable, Optional

from ddplaunch.agent.system import processes

_CHUNK = 1 << 18
_LIMIT = 16 << 20
"""Bytes of the longest answer: a full flight recorder of one backend is 1 MiB."""
_CONNECTIONS = 4096
_WOKEN = 0.5
"""Seconds after a signal of ours within which an answer may be due to it."""

HookMessage = dict[str, Any]


class Line:
    """The connection to one process that has the hook."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid  # from the kernel: the process may be in another pid namespace
        self.role = ""  # "rank" | "any" | "child" | "keeper", by its hello
        self.child: Optional[int] = None  # of a keeper: its rank's pid
        self.mpi_ready = False  # MPI was initialized and not finalized when it last sent a message
        self.signalled = False  # of a keeper: it got a signal that ends its rank
        self.rank: Optional[int] = None
        self.local_rank: Optional[int] = None
        self.world_size: Optional[int] = None
        self.fault_file = ""  # where faulthandler writes when signalled
        self.output_files: list[str] = []  # where its carrier keeps what it prints, if that is its alone
        self.ring_file = ""  # file with its last calls of torch.distributed, once there are any
        self.python = ""
        self.thread = 0  # the kernel's number of the thread that answers; 0: it has not answered yet
        self.ending = 0.0  # wall clock: when its interpreter began to shut down by itself; 0: it has not
        self.signals: list[Any] = []  # what `told` of ddplaunch_signals returned when it ended
        self.left: list[dict[str, Any]] = []  # the call by which it ends, and what it was handling there
        self.is_open = True
        self.closed_at = 0.0  # wall clock; 0: it is open, or we could not write to it
        self.request: Optional[bytes] = None  # sent, and not answered yet
        self.requested_at = 0.0
        self.mute_since = 0.0  # as `requested_at`, or of an earlier request that our own signal let it answer
        self.woken_at = 0.0  # when we last sent a signal for its stacks; 0: never
        self.answer: Optional[HookMessage] = None  # the latest
        self.answered_at = 0.0
        self.buffer = bytearray()

    def ask(self, word: bytes) -> None:
        """Send a request, unless an earlier one is unanswered: then the process may be unable to answer."""
        if self.is_open and not self.ending and self.request is None and self.role:
            was_woken = self.mute_since < self.woken_at < self.answered_at < self.woken_at + _WOKEN
            self.answer, self.request, self.requested_at = None, word, time.monotonic()
            self.mute_since = self.mute_since if was_woken else self.requested_at
            self.send(word)

    def send(self, word: bytes) -> None:
        try:
            self.connection.send(word + b"\n")
        except OSError:
            self.is_open = False

    @property
    def silent_for(self) -> float:
        """Return the seconds since the unanswered request; 0 if there is none."""
        return 0.0 if self.request is None else time.monotonic() - self.requested_at

    @property
    def mute_for(self) -> float:
        """Return the seconds for which it has answered nothing, or only because our signal woke it.

        Native code that waits in the kernel with the GIL may return to Python then, as from pause(2).
        """
        return 0.0 if self.request is None else time.monotonic() - self.mute_since


class Hooks:
    """Connections to the hooks of this node. `on_message` gets every message that is not an answer."""

    def __init__(self, on_message: Callable[[Line, HookMessage], None]) -> None:
        self.name = f"ddplaunch-{os.getpid()}-{os.urandom(8).hex()}"
        self.lines: dict[int, Line] = {}  # by pid
        self._on_message = on_message
        self._selector = selectors.EpollSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.name)
        self._listener.listen(_CONNECTIONS)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return an epoll descriptor, readable when there is a message, for another selector to wait on."""
        return self._selector.fileno()

    def listen(self, timeout: float = 0.0) -> None:
        """Read the messages that are there, or that come within `timeout` seconds."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._read(key.data)

    def ask_all(
        self, lines: Iterable[Line], word: bytes, deadline: float, meanwhile: Callable[[], None]
    ) -> None:
        """Ask all at once. Wait until all have answered or are gone, or until time.monotonic() is `deadline`.

        If a line still owes another answer, it gets the request once that answer has come. If it has owed
        that for longer than we would wait, it is not waited for.
        """
        patience = deadline - time.monotonic()
        waiting = [line for line in lines if line.silent_for <= patience]
        requested: set[Line] = set()
        while True:
            for line in waiting:
                if line.request is None and line not in requested:
                    requested.add(line)
                    line.ask(word)
            waiting = [line for line in waiting if line.is_open and line.request is not None]
            left = deadline - time.monotonic()
            if left <= 0 or not waiting:
                return
            self.listen(min(left, 0.02))
            meanwhile()

    def drop_all(self) -> None:
        """Close all connections. New ones are accepted."""
        for line in list(self.lines.values()):
            self.drop(line)

    def close(self) -> None:
        self.drop_all()
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        for connection, pid in processes.accept_own(self._listener):
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
            self.drop(line)

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
            line.answer, line.request, line.answered_at = message, None, time.monotonic()
            line.thread = int(message.get("tid", 0))
            return
        line.fault_file = message.get("fault") or line.fault_file
        if "hello" in message:
            line.role, line.python = message["hello"], message.get("python", "")
            line.ring_file = message.get("ring", "")
            line.output_files = list(message.get("output", ()))
            line.rank, line.local_rank = _number(message.get("rank")), _number(message.get("local_rank"))
            line.world_size = _number(message.get("world_size"))
            line.child = message.get("child")
        line.signalled = line.signalled or "signal" in message
        if "ending" in message:
            line.ending = line.ending or float(message["ending"])
            line.signals = message.get("signals", [])
        if "left" in message:
            line.left = message["left"]
        self._on_message(line, message)

    def drop(self, line: Line) -> None:
        """Close a connection that is open."""
        line.is_open = False
        line.closed_at = time.time()
        self._selector.unregister(line.connection)
        line.connection.close()
        if self.lines.get(line.pid) is line:
            del self.lines[line.pid]


def _number(value: Any) -> Optional[int]:
    return int(value) if isinstance(value, str) and value.isdecimal() else None
