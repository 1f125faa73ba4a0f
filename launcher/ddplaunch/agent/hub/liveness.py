"""Tells which nodes still answer: by their messages, or else by what their kernel acknowledges.

A node that has gone silent is sent a word now and then. When its kernel does not confirm that, the node, or
the way to it, is gone. When its kernel does, its supervisor is starved, stopped or stuck, or its machine is
frozen, as a paused container is: that is said only where all other nodes wait, for the ranks of a node
whose supervisor alone is stuck go on. A switch may take half a minute to find another way, which training
survives: silence is told early, and acted upon late.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Lost, WatchdogPlan
from ddplaunch.agent.hub.server import Session

_EVERY = 1.0
QUIET = 3.0
"""Seconds without a word (beats come every second) after which a node is sent one."""
MUTE = 5.0
"""Seconds for its kernel to confirm it. Three packets are sent in that time."""
CLOSED = 5.0
"""Seconds for a supervisor whose connection was closed to come back: it calls again at once, if it lives."""
GONE = 60.0
"""Seconds of silence after which the node is given up. One whose kernel answers has until `kill_after`."""
SLEPT = 2.0
"""Seconds between two looks after which the hub itself was frozen: all nodes get their time again."""


class Changes(NamedTuple):
    """Nodes whose state has changed since the last look."""

    silent: list[int]
    back: list[int]
    gone: list[int]
    slept: bool  # the hub itself was frozen


@dataclass
class _Node:
    session: Optional[Session]  # None: it has not joined this hub
    heard: float  # by the session's clock
    heard_at: float  # wall clock
    completed: int = 0  # collectives, by its last beat
    asked: Optional[float] = None  # when it was sent a word that its kernel may not have confirmed yet
    first_asked: Optional[float] = None  # when the first since it was heard
    closed: Optional[float] = None  # since when its connection is closed
    silent: bool = False
    frozen: bool = False  # silent, but its kernel confirms
    gone: bool = False


class Liveness:
    """Tell which joined nodes are alive until they finish. Times are the session's monotonic clock."""

    def __init__(self, watchdog: WatchdogPlan) -> None:
        self._nodes: dict[int, _Node] = {}
        self._notice_after = watchdog.notice_after
        self._kill_after = float("inf") if watchdog.kill_after is None else watchdog.kill_after
        self._looked = float("inf")

    @property
    def lost(self) -> list[Lost]:
        """Return the nodes that do not answer now, or have been given up."""
        return [
            Lost(number, node.heard_at, node.closed is not None, node.completed, node.frozen)
            for number, node in sorted(self._nodes.items())
            if node.silent or node.closed is not None
        ]

    @property
    def gone(self) -> set[int]:
        """Return the nodes that have been given up. None of them comes back."""
        return {number for number, node in self._nodes.items() if node.gone}

    def how(self, number: int) -> str:
        """Return what a silent node does, for a log."""
        frozen = self._nodes[number].frozen
        return "says nothing any more, while its kernel answers" if frozen else "does not answer any more"

    def joined(self, number: int, session: Session, now: float) -> None:
        old = self._nodes.get(number)
        self._nodes[number] = fresh = _Node(session, now, time.time())
        if old is not None:
            fresh.completed, fresh.silent, fresh.gone = old.completed, old.silent, old.gone

    def missed(self, number: int, now: float) -> None:
        """It was here before this hub was started in the place of another, and has not come back."""
        self._nodes[number] = _Node(None, now, time.time(), closed=now, silent=True)

    def heard(self, number: int, now: float, completed: int = 0) -> None:
        """It said something; `completed`: collectives of all its ranks."""
        node = self._nodes.get(number)
        if node is not None:
            node.heard, node.heard_at, node.asked, node.first_asked = now, time.time(), None, None
            node.completed = max(node.completed, completed)

    def closed(self, number: int, session: Session, now: float) -> None:
        """Note that the node's connection is gone, without a farewell."""
        node = self._nodes.get(number)
        if node is not None and node.session is session:
            node.closed = now

    def finished(self, number: int) -> None:
        """It has ended in order: nothing is expected from it any more."""
        self._nodes.pop(number, None)

    def look(self, now: float, is_missed: Callable[[], bool] = lambda: False) -> Changes:
        """`is_missed`: whether all nodes that speak wait for those that do not."""
        slept = now - self._looked >= SLEPT
        if slept:
            for node in self._nodes.values():
                if not node.silent:
                    node.asked = node.first_asked = None
        self._looked = now
        changes = Changes([], [], [], slept)
        for number, node in self._nodes.items():
            if node.gone:
                continue
            if node.closed is None:
                self._question(node, now)
                mute = _owes(node, now)
                node.frozen = not mute and self._is_mum(node, now) and (node.silent or is_missed())
                silent = mute or node.frozen
                if silent != node.silent:
                    node.silent = silent
                    (changes.silent if silent else changes.back).append(number)
            if (node.closed is not None or node.silent) and self._is_given_up(node, now):
                node.gone = True
                changes.gone.append(number)
        return changes

    def _is_mum(self, node: _Node, now: float) -> bool:
        """Whether it has said nothing for so long that others who wait for it are worth a word."""
        patience = max(self._notice_after - QUIET, MUTE)
        return node.first_asked is not None and now - node.first_asked >= patience

    def _is_given_up(self, node: _Node, now: float) -> bool:
        if node.closed is not None:
            # A connection that timed out while the node was silent may be back when the network is.
            patience = min(GONE, self._kill_after) if node.silent else CLOSED
            return now - node.closed >= patience
        return now - node.heard >= (self._kill_after if node.frozen else min(GONE, self._kill_after))

    def _question(self, node: _Node, now: float) -> None:
        if now - node.heard < QUIET:
            return
        assert node.session is not None
        if node.asked is None or (now - node.asked >= _EVERY and not node.session.unconfirmed()):
            node.asked = now
            node.first_asked = now if node.first_asked is None else node.first_asked
            node.session.send("answer", {})


def _owes(node: _Node, now: float) -> bool:
    if node.session is None or node.asked is None or now - node.asked < MUTE:
        return False
    return node.session.unconfirmed() >= MUTE
