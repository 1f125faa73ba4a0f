"""The supervisor's line to the hub. A hub that is gone stops nothing: training goes on, and we call again."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional

from ddplaunch.agent.protocol import Body, Channel, LostError, Message, ProtocolError

_CALL = 1.0
"""Seconds for one attempt: while it lasts nothing else is seen."""
_FIRST_CALL = 10.0
_BACKOFF = 30.0
_SEND = 5.0
"""Seconds until a hub that does not read counts as lost."""


class Link:
    """`tell` is given a sentence whenever the hub is lost or found again."""

    def __init__(
        self,
        host: Optional[str],
        port: Optional[int],
        key: bytes,
        attempt: int,
        node: int,
        tell: Callable[[str], None],
    ) -> None:
        self._address = (host, port) if host is not None and port is not None else None
        self._key = key
        self._attempt = attempt
        self._node = node
        self._tell = tell
        self._channel: Optional[Channel] = None
        self._pause = 1.0
        self._next_call = 0.0
        self._lost = False

    @property
    def up(self) -> bool:
        return self._channel is not None

    def fileno(self) -> Optional[int]:
        return self._channel.fileno() if self._channel is not None else None

    def keep(self, patience: float = _CALL) -> None:
        """Call the hub if it is time to."""
        if self._address is None or self._channel is not None or time.monotonic() < self._next_call:
            return
        host, port = self._address
        try:
            self._channel = Channel.connect(host, port, self._key, self._attempt, time.monotonic() + patience)
        except ProtocolError as error:
            self._next_call = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _BACKOFF)
            self._lose(f"the hub at {host} port {port} cannot be reached ({error})")
            return
        if self._lost:
            self._tell("the hub answers again")
        self._lost, self._pause = False, 1.0
        self.send("join", {"node": self._node, "host": socket.gethostname(), "pid": os.getpid()})

    def call_first(self) -> None:
        """The first call has more patience: without the hub nobody judges."""
        self.keep(_FIRST_CALL)

    def send(self, kind: str, body: Body) -> bool:
        """Whether it is on its way."""
        if self._channel is None:
            return False
        try:
            self._channel.send(kind, body, _SEND)
            return True
        except LostError as error:
            self._drop(error)
            return False

    def received(self) -> Iterator[Message]:
        """Messages that have come."""
        while self._channel is not None:
            try:
                message = self._channel.receive(0.0)
            except LostError as error:
                self._drop(error)
                return
            if message is None:
                return
            yield message

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _drop(self, error: Any) -> None:
        self.close()
        self._lose(f"the hub is lost ({error})")

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._tell(f"{why}; the training goes on, and this node calls it again")
        self._lost = True
