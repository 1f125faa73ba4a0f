"""The connection to the hub, for reports to it and orders from it. Training goes on without it.

`supervisor` reads it in its loop. While the hub is away, the supervisor calls it again. A new hub may have
replaced one that was killed, so the lasting reports are sent again on every connection. A damaged message
from the hub must not end the training: it is logged and left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Callable, Optional, Union

from ddplaunch.agent.contract import codec
from ddplaunch.agent.contract.messages import (
    Collect,
    End,
    Join,
    Message,
    Noted,
    Notice,
    SignalRanks,
    Way,
    load,
)
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.platforms import places, termination
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Body, Channel, LostError, ProtocolError

_CALL = 1.0
"""Seconds for one attempt; meanwhile the supervisor does nothing else."""
_FIRST_CALL = 10.0
_BACKOFF = 30.0
_LOOK = 0.1
_RETURN = 10.0
"""Seconds for a killed hub to be started again."""
_SILENT = 10.0
"""Seconds without a message after which a hub counts as away: it is stopped or frozen. It sends one every
two."""
_FROZEN = 40.0
"""Seconds without a message after which a hub is given up. By then its parent would have restarted it."""
_SEND = 5.0
"""Seconds after which a hub that does not read counts as lost."""


class HubLink:
    """Keeps the connection to the hub. `log` gets a sentence whenever the connection is lost or back."""

    def __init__(
        self,
        hub: Sequence[Endpoint],
        key: bytes,
        attempt: int,
        node: int,
        log: Callable[[str], None],
        redactor: Redactor = NO_SECRETS,
        regroups: int = 0,
    ) -> None:
        self._hub = list(hub)  # the next one to try first
        self._key = key
        self._attempt = attempt
        self._regroups = regroups
        self._node = node
        self._log = log
        self.redactor = redactor
        self._channel: Optional[Channel] = None
        self._pause = 1.0
        self._next_call = 0.0
        self._lost = False
        self._was_up = False
        self._lost_at = self._last_message = time.monotonic()
        self._failed = 0  # calls since the last one that was answered
        self._reports: dict[Hashable, Message] = {}

    @property
    def is_up(self) -> bool:
        return self._channel is not None

    @property
    def may_speak(self) -> bool:
        """Whether there is a hub that is not frozen, or a lost one may soon be started again."""
        now = time.monotonic()
        return (
            now - self._last_message < _FROZEN
            if self.is_up
            else self._was_up and now - self._lost_at < _RETURN
        )

    @property
    def down_for(self) -> float:
        """Return the seconds since the last message of a hub that is gone or silent; 0 if it sends."""
        silent = time.monotonic() - self._last_message
        return 0.0 if not self._hub or (self.is_up and silent < _SILENT) else silent

    def forgive_silence(self) -> None:
        """Give the hub its time again: we were stopped, and it may have been stopped too."""
        self._last_message = self._lost_at = time.monotonic()

    def fileno(self) -> Optional[int]:
        return self._channel.fileno() if self._channel is not None else None

    def connect_if_due(self, patience: float = _CALL) -> None:
        """Connect to the hub's next address, if there is no connection and it is time for one."""
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
            self._log("the hub answers again")
        self._last_message = time.monotonic()
        self._was_up, self._lost, self._failed, self._pause = True, False, 0, 1.0
        self.send(Join(self._node, places.host(), os.getpid(), time.time(), self._regroups))
        for report in self._reports.values():
            self.send(report)

    def call_first(self) -> None:
        """Try each of the hub's addresses once, with more patience than later."""
        for _ in range(len(self._hub)):
            self._next_call = 0.0
            self.connect_if_due(_FIRST_CALL / len(self._hub))

    def send(self, message: Message) -> None:
        """Send a message, or drop it if there is no connection."""
        if self._channel is None:
            return
        try:
            self._channel.send(*message.pack(), _SEND)
        except LostError as error:
            self._drop(error)

    def report(self, message: Message, about: Hashable = None) -> None:
        """Send a message now and on every later connection, in place of the last of its kind and `about`."""
        self._reports[type(message), about] = message
        self.send(message)

    def forget(self, kind: type[Message]) -> None:
        """Forget the reports of this kind."""
        self._reports = {key: report for key, report in self._reports.items() if not isinstance(report, kind)}

    def receive(self) -> Iterator[tuple[str, Body]]:
        """Yield the kinds and bodies of the messages that have come."""
        while self._channel is not None:
            try:
                message = self._channel.receive(0.0)
            except LostError as error:
                self._drop(error)
                return
            if message is None:
                return
            self._last_message = time.monotonic()
            yield message

    def expect_hang_up(self) -> None:
        """From now on do not log that the connection is lost: the hub has sent its last message."""
        self._lost = True

    def outlive(self, patience: float, is_stopping: Callable[[], bool]) -> None:
        """Wait until the hub has hung up, for at most `patience` seconds, and until its pod has ended."""
        self.expect_hang_up()
        deadline = time.monotonic() + patience + termination.FIRST
        while not is_stopping() and time.monotonic() < deadline:
            stood = self.is_up
            list(self.receive())
            if stood and not self.is_up:
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
            self._log(f"{why}; the training goes on, and this node calls it again")
        self._lost = True


# --- orders

_LONGEST_WAIT = 600.0
"""Seconds; an order may ask for no more."""

Order = Union[Collect, Notice, End, Noted, SignalRanks]


def read_orders(lines: Iterable[tuple[str, Body]], log: Callable[[str], None]) -> Iterator[Order]:
    """Yield the orders among kinds and bodies. `log` gets a sentence about each one that cannot be read."""
    for kind, body in lines:
        try:
            order = _read_order(kind, body)
        except codec.ContractError as error:
            log(f"cannot read the hub's message {kind[:40]!r}: {error}")
        else:
            if order is not None:
                yield order


def _read_order(kind: str, body: Body) -> Optional[Order]:
    message = load(kind, body, Way.HUB_TO_SUPERVISOR)
    if isinstance(message, Collect):
        return replace(message, deadline=_bounded(message.deadline))
    if isinstance(message, Notice):
        catalogue.check_end(message.verdicts)
        return message
    if isinstance(message, End):
        catalogue.check_end(message.verdicts, message.exit_code)
        return replace(message, grace=_bounded(message.grace))
    return message if isinstance(message, (Noted, SignalRanks)) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_WAIT)
