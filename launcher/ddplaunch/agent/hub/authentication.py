"""A new connection to the hub, until the client has proved that it knows the job's key.

It costs the hub a few kB: no task, no stream, and a buffer that holds the first line and nothing more.
"""

from __future__ import annotations

import asyncio
from typing import Callable, Optional

from ddplaunch.agent.system.resolve import plain_address
from ddplaunch.agent.transport.protocol import HELLO_LIMIT, HELLO_SECONDS, ServerHandshake
from ddplaunch.agent.transport.unproved import UnprovedConnections

OnLine = Callable[["Authentication", bytes, bytes], None]
"""Called with the first line, and with the bytes behind it. It answers, or drops the connection."""


class Authentication(asyncio.BufferedProtocol):
    """Sends the greeting and waits for one line, at most HELLO_SECONDS and HELLO_LIMIT bytes."""

    def __init__(
        self,
        handshake: ServerHandshake,
        unproved: UnprovedConnections[Authentication],
        room: Callable[[], int],
        on_line: OnLine,
    ) -> None:
        self.handshake = handshake
        self.peer = ""
        self.transport: asyncio.Transport
        self._unproved = unproved
        self._room = room
        self._on_line = on_line
        self._buffer = bytearray(HELLO_LIMIT)
        self._length = 0
        self._timer: Optional[asyncio.TimerHandle] = None

    def shut(self) -> None:
        """Drop the connection without an answer."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = plain_address((transport.get_extra_info("peername") or ("gone",))[0])
        dropped = self._unproved.enter(self.peer, self, self._room())
        if dropped is not None:
            dropped.shut()
        transport.write(self.handshake.hello)
        self._timer = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.shut)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's own signature
        return memoryview(self._buffer)[self._length :]

    def buffer_updated(self, nbytes: int) -> None:
        self._length += nbytes
        end = self._buffer.find(b"\n", 0, self._length)
        if end < 0:
            if self._length == HELLO_LIMIT:
                self.shut()
            return
        self._leave()
        self._on_line(self, bytes(self._buffer[: end + 1]), bytes(self._buffer[end + 1 : self._length]))

    def connection_lost(self, exc: Optional[Exception]) -> None:  # noqa: ARG002 - asyncio's own signature
        self._leave()

    def _leave(self) -> None:
        self._unproved.leave(self.peer, self)
        if self._timer is not None:
            self._timer.cancel()
