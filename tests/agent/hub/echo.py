"""A handler for tests of the server: it sends back what it is sent, and knows some ways to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddplaunch.agent.contract.messages import LONG, Heartbeat, Message, Way
from ddplaunch.agent.hub.server import Session
from ddplaunch.agent.plan.codec import ContractError


@dataclass(frozen=True)
class Echo(Message, kind="echo", way=Way.COMMAND_TO_HUB, limit=LONG):
    """Is sent back."""

    data: Any = None


@dataclass(frozen=True)
class Bad(Message, kind="bad", way=Way.COMMAND_TO_HUB):
    """The handler does not take it."""


@dataclass(frozen=True)
class Bug(Message, kind="bug", way=Way.COMMAND_TO_HUB):
    """The handler fails over it."""


@dataclass(frozen=True)
class Flood(Message, kind="flood", way=Way.COMMAND_TO_HUB):
    """Is answered by more than a client reads."""


class EchoDesk:
    """Answers `echo` with the same message; knows some ways to fail."""

    takes = (Echo, Bad, Bug, Flood, Heartbeat)

    def __init__(self) -> None:
        self.lost_sessions = 0
        self.ticks = 0

    async def received(self, session: Session, message: Message) -> None:
        if isinstance(message, Bad):
            raise ContractError("body: wanted an object, found list")
        if isinstance(message, Bug):
            raise ZeroDivisionError("a mistake of this desk")
        if isinstance(message, Flood):
            for _ in range(1000):
                session.send(Echo("x" * 100_000))
        session.send(message)

    async def lost(self, session: Session) -> None:
        self.lost_sessions += 1

    async def tick(self, now: float) -> None:
        self.ticks += 1
        if self.ticks == 1:
            raise ZeroDivisionError("a mistake in the first tick")

    async def stop(self, why: str) -> None:
        """Nothing to end."""
