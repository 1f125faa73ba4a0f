"""Which nodes still answer: by what they say, and where they say nothing, by what their kernel confirms.

A supervisor may be starved, stopped or stuck, and its node be well all the same: its kernel still confirms
what is sent to it. So a node that has gone silent is sent a word now and then; only when not even that is
confirmed is the node, or the way to it, gone. A switch may take half a minute to find another way, which
training survives: silence is told early, and acted upon late.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Lost
from ddplaunch.agent.hub.server import Session

_EVERY = 1.0
QUIET = 3.0
"""Seconds without a word (beats come every second) after which a node is sent one."""
MUTE = 5.0
"""Seconds for its kernel to confirm it. Three packets are sent in that time."""
CLOSED = 5.0
"""Seconds for a supervisor whose connection was closed to come back: it calls again at once, if it lives."""
GONE = 60.0
"""Seconds of silence after which the node is given up."""


class News(NamedTuple):
    """What has changed since the last look. Nodes."""

    silent: list[int]
    back: list[int]
    gone: list[int]


@dataclass
class _Node:
    session: Session
    heard: float  # on the desk's clock
    heard_at: float  # wall clock
    completed: int = 0  # collectives, by its last beat
    asked: Optional[float] = None  # since when its kernel owes us a confirmation
    closed: Optional[float] = None  # since when its connection is closed
    silent: bool = False
    gone: bool = False


class Presence:
    """Of the nodes that have joined and not yet finished. Times are the desk's monotonic clock."""

    def __init__(self, patience: Optional[float]) -> None:
        self._nodes: dict[int, _Node] = {}
        self._patience = GONE if patience is None else min(GONE, patience)

    @property
    def lost(self) -> list[Lost]:
        """Who does not answer now, or has been given up."""
        return [
            Lost(number, node.heard_at, node.closed is not None, node.completed)
            for number, node in sorted(self._nodes.items())
            if node.silent or node.closed is not None
        ]

    @property
    def gone(self) -> set[int]:
        """Who has been given up. Nobody comes back from there."""
        return {number for number, node in self._nodes.items() if node.gone}

    def joined(self, number: int, session: Session, now: float) -> None:
        old = self._nodes.get(number)
        self._nodes[number] = fresh = _Node(session, now, time.time())
        if old is not None:
            fresh.completed, fresh.silent, fresh.gone = old.completed, old.silent, old.gone

    def heard(self, number: int, now: float, completed: int = 0) -> None:
        """It said something; `completed`: collectives of all its ranks."""
        node = self._nodes.get(number)
        if node is not None:
            node.heard, node.heard_at, node.asked = now, time.time(), None
            node.completed = max(node.completed, completed)

    def closed(self, number: int, session: Session, now: float) -> None:
        """Its connection is gone, and nothing was said before."""
        node = self._nodes.get(number)
        if node is not None and node.session is session:
            node.closed = now

    def finished(self, number: int) -> None:
        """It has ended in order: nothing is expected from it any more."""
        self._nodes.pop(number, None)

    def look(self, now: float) -> News:
        news = News([], [], [])
        for number, node in self._nodes.items():
            if node.gone:
                continue
            if node.closed is None:
                self._question(node, now)
            silent = node.closed is None and _owes(node, now)
            if silent != node.silent and node.closed is None:
                node.silent = silent
                (news.silent if silent else news.back).append(number)
            # A connection that timed out while the node was silent may be back when the network is.
            patience = CLOSED if node.closed is not None and not node.silent else self._patience
            if (node.closed is not None or node.silent) and now - (node.closed or node.heard) >= patience:
                node.gone = True
                news.gone.append(number)
        return news

    def _question(self, node: _Node, now: float) -> None:
        if now - node.heard < QUIET:
            return
        if node.asked is None or (now - node.asked >= _EVERY and not node.session.unconfirmed()):
            node.asked = now
            node.session.send("answer", {})


def _owes(node: _Node, now: float) -> bool:
    return node.asked is not None and now - node.asked >= MUTE and node.session.unconfirmed() >= MUTE
