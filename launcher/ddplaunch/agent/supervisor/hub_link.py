"""The connection to the hub. Training goes on without it, and it is opened again.

The hub that answers may be another one, started in the place of one that was killed: it is sent the lasting
reports once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Callable, Optional

from ddplaunch.agent.platforms import physical_host, termination
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Body, Channel, LostError, Message, ProtocolError

_CALL = 1.0
"""Seconds for one attempt: while it lasts nothing else is seen."""
_FIRST_CALL = 10.0
_BACKOFF = 30.0
_LOOK = 0.1
_RETURN = 10.0
"""Seconds for a hub that was killed to be started again, wherever that is."""
_SILENT = 10.0
"""Seconds without a word after which a hub counts as away: it is stopped, or frozen. It speaks every two."""
_FROZEN = 40.0
"""Seconds without a word after which a hub speaks no more: its parent would have started it again by now."""
_SEND = 5.0
"""Seconds until a hub that does not read counts as lost."""


class HubLink:
    """`tell` is given a sentence whenever the hub is lost or found again."""

    def __init__(
        self,
        hub: Sequence[Endpoint],
        key: bytes,
        attempt: int,
        node: int,
        tell: Callable[[str], None],
        redactor: Redactor = NO_SECRETS,
    ) -> None:
        self._hub = list(hub)  # what is to be tried next stands first
        self._key = key
        self._attempt = attempt
        self._node = node
        self._tell = tell
        self.redactor = redactor
        self._channel: Optional[Channel] = None
        self._pause = 1.0
        self._next_call = 0.0
        self._lost = False
        self._met = False
        self._lost_at = self._heard = time.monotonic()
        self._failed = 0  # calls since the last one that was answered
        self._reports: dict[Hashable, Message] = {}

    @property
    def up(self) -> bool:
        return self._channel is not None

    @property
    def may_speak(self) -> bool:
        """Whether there is a hub that is not frozen, or one that was lost may soon be started again."""
        now = time.monotonic()
        return now - self._heard < _FROZEN if self.up else self._met and now - self._lost_at < _RETURN

    @property
    def down_for(self) -> float:
        """Seconds since the last word of a hub that is gone or silent; 0 while one speaks, or without any."""
        silent = time.monotonic() - self._heard
        return 0.0 if not self._hub or (self.up and silent < _SILENT) else silent

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
        self._channel.redactor = self.redactor
        if self._lost:
            self._tell("the hub answers again")
        self._heard = time.monotonic()
        self._met, self._lost, self._failed, self._pause = True, False, 0, 1.0
        self.send(
            "join", {"node": self._node, "host": physical_host.host(), "pid": os.getpid(), "at": time.time()}
        )
        for report in self._reports.values():
            self.send(*report)

    def call_first(self) -> None:
        """The first calls have more patience: without the hub nobody judges."""
        for _ in range(len(self._hub)):
            self._next_call = 0.0
            self.keep(_FIRST_CALL / len(self._hub))

    def send(self, kind: str, body: Body) -> None:
        """Now or never."""
        if self._channel is None:
            return
        try:
            self._channel.send(kind, body, _SEND)
        except LostError as error:
            self._drop(error)

    def report(self, kind: str, body: Body, about: Hashable = None) -> None:
        """Send it now, and to every hub that answers later; it replaces the last of its kind `about` this."""
        self._reports[kind, about] = kind, body
        self.send(kind, body)

    def forget(self, kind: str) -> None:
        """Forget what was reported so: it is past."""
        self._reports = {key: report for key, report in self._reports.items() if report[0] != kind}

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
            self._heard = time.monotonic()
            yield message

    def expect_hang_up(self) -> None:
        """Expect that the hub hangs up: it has said its last word."""
        self._lost = True

    def outlive(self, patience: float, told_to_stop: Callable[[], bool]) -> None:
        """Until the hub has hung up, and then so long that its whole pod has ended."""
        self.expect_hang_up()
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
            self._lost_at = time.monotonic()

    def _drop(self, error: Any) -> None:
        self.close()
        self._lose(f"the hub is lost ({error})")

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._tell(f"{why}; the training goes on, and this node calls it again")
        self._lost = True
