"""The supervisor's line to the hub. A hub that is gone stops nothing: training goes on, and we call again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

from ddplaunch.agent import machines, termination
from ddplaunch.agent.addresses import Address
from ddplaunch.agent.protocol import Body, Channel, LostError, Message, ProtocolError

_CALL = 1.0
"""Seconds for one attempt: while it lasts nothing else is seen."""
_FIRST_CALL = 10.0
_BACKOFF = 30.0
_LOOK = 0.1
_SEND = 5.0
"""Seconds until a hub that does not read counts as lost."""


class Link:
    """`tell` is given a sentence whenever the hub is lost or found again."""

    def __init__(
        self,
        hub: Sequence[Address],
        key: bytes,
        attempt: int,
        node: int,
        tell: Callable[[str], None],
    ) -> None:
        self._hub = list(hub)  # what is to be tried next stands first
        self._key = key
        self._attempt = attempt
        self._node = node
        self._tell = tell
        self._channel: Optional[Channel] = None
        self._pause = 1.0
        self._next_call = 0.0
        self._lost = False
        self._failed = 0  # calls since the last one that was answered

    @property
    def up(self) -> bool:
        return self._channel is not None

    def fileno(self) -> Optional[int]:
        return self._channel.fileno() if self._channel is not None else None

    def keep(self, patience: float = _CALL) -> None:
        """Call the hub if it is time to, by the next of its addresses."""
        if not self._hub or self._channel is not None or time.monotonic() < self._next_call:
            return
        host, port = self._hub[0]
        try:
            self._channel = Channel.connect(host, port, self._key, self._attempt, time.monotonic() + patience)
        except ProtocolError as error:
            self._hub.append(self._hub.pop(0))
            self._next_call = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _BACKOFF)
            self._failed += 1
            if self._failed >= len(self._hub):
                self._lose(f"the hub at {host} port {port} cannot be reached ({error})")
            return
        if self._lost:
            self._tell("the hub answers again")
        self._lost, self._failed, self._pause = False, 0, 1.0
        self.send("join", {"node": self._node, "host": machines.host(), "pid": os.getpid()})

    def call_first(self) -> None:
        """The first calls have more patience: without the hub nobody judges."""
        for _ in range(len(self._hub)):
            self._next_call = 0.0
            self.keep(_FIRST_CALL / len(self._hub))

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

    def outlive(self, patience: float, told_to_stop: Callable[[], bool]) -> None:
        """Until the hub has hung up, and then so long that its whole pod has ended."""
        self._lost = True  # that it hangs up is no news
        deadline = time.monotonic() + patience + termination.FIRST
        while not told_to_stop() and time.monotonic() < deadline:
            stood = self.up
            list(self.received())
            if stood and not self.up:
                deadline = time.monotonic() + termination.FIRST
            time.sleep(_LOOK)

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
