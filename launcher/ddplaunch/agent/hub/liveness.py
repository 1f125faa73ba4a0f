"""Which nodes are there after the gate: which have joined, which are silent, and which are gone.

The hub sends a Ping to a silent node. If the node's kernel does not acknowledge it, the node or the network
path to it is gone. If the kernel does, the supervisor is starved, stopped or stuck, or the machine is frozen,
as a paused container is. That is reported only if all other nodes wait, because ranks go on when only their
supervisor is stuck. A switch may take half a minute to find another path, and training survives that: so
silence is reported early and acted on late.

`run` calls this at every tick. Times are the monotonic clock, and are passed in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Files, Lost, Phase, Verdict, WatchdogPlan, codec
from ddplaunch.agent.contract.messages import Ping
from ddplaunch.agent.diagnosis.gate import arrivals
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session
from ddplaunch.agent.platforms.scheduler_log import SchedulerLog

_PING_EVERY = 1.0
QUIET = 3.0
"""Seconds without a message, when beats come every second, after which a node is sent a Ping."""
UNCONFIRMED = 5.0
"""Seconds that the node's kernel has to acknowledge the Ping. Three packets are sent in that time."""
CLOSED = 5.0
"""Seconds that a supervisor has to reconnect after its connection was closed: a living one does so at once.
"""
GONE = 60.0
"""Seconds of silence after which a node is given up. If its kernel answers, the node has until `kill_after`.
"""
RECONNECT = 35.0
"""Seconds for the nodes of an earlier hub to come back: supervisors pause for up to thirty between two calls.
"""
SLEPT = 2.0
"""If this many seconds pass between two looks, the hub itself was frozen, and patience starts again."""


class Changes(NamedTuple):
    """Nodes whose state has changed since the last look."""

    silent: list[int]
    back: list[int]
    gone: list[int]
    slept: bool  # the hub itself was frozen


@dataclass
class _Node:
    session: Optional[Session]  # None: it has not joined this hub
    received: float  # by the session's clock
    received_at: float  # wall clock
    completed: int = 0  # collectives, by its last beat
    pinged: Optional[float] = None  # when it was sent the last Ping
    first_ping: Optional[float] = None  # when it was sent the first Ping since its last message
    closed: Optional[float] = None  # since when its connection is closed
    silent: bool = False
    frozen: bool = False  # silent, but its kernel acknowledges
    gone: bool = False


class Liveness:
    """The joined nodes, until they finish: alive, silent or gone. Times are the monotonic clock."""

    def __init__(self, watchdog: WatchdogPlan) -> None:
        self._nodes: dict[int, _Node] = {}
        self._notice_after = watchdog.notice_after
        self._kill_after = float("inf") if watchdog.kill_after is None else watchdog.kill_after
        self._looked = float("inf")
        self._awaited: set[int] = set()  # the nodes of an earlier hub, until they join this one
        self._awaited_until = 0.0

    @property
    def lost(self) -> list[Lost]:
        """Return the nodes that do not answer now, or that have been given up."""
        return [
            Lost(number, node.received_at, node.closed is not None, node.completed, node.frozen)
            for number, node in sorted(self._nodes.items())
            if node.silent or node.closed is not None
        ]

    @property
    def gone(self) -> set[int]:
        """Return the nodes that have been given up. None of them comes back."""
        return {number for number, node in self._nodes.items() if node.gone}

    def describe(self, number: int) -> str:
        """Return what a silent node is doing, for the log."""
        frozen = self._nodes[number].frozen
        return "is silent, while its kernel answers" if frozen else "does not answer any more"

    def note_joined(self, number: int, session: Session, now: float) -> None:
        old = self._nodes.get(number)
        self._nodes[number] = fresh = _Node(session, now, time.time())
        if old is not None:
            fresh.completed, fresh.silent, fresh.gone = old.completed, old.silent, old.gone
        self._awaited.discard(number)

    def expect(self, nodes: Iterable[int], now: float) -> None:
        """Wait for these nodes, which were connected to the hub that this one replaces."""
        self._awaited, self._awaited_until = set(nodes), now + RECONNECT

    def is_waiting(self, now: float) -> bool:
        """Whether nodes of an earlier hub may still come back.

        They will report what has happened meanwhile. Until then the hub judges nothing, because a verdict on
        half of the job may name the wrong rank.
        """
        return bool(self._awaited) and now < self._awaited_until

    def note_message(self, number: int, now: float, completed: int = 0) -> None:
        """Note that the node has sent something; `completed`: collectives of all its ranks."""
        node = self._nodes.get(number)
        if node is not None:
            node.received, node.received_at, node.pinged, node.first_ping = now, time.time(), None, None
            node.completed = max(node.completed, completed)

    def note_closed(self, number: int, session: Session, now: float) -> None:
        """Note that the node's connection has ended without a last message."""
        node = self._nodes.get(number)
        if node is not None and node.session is session:
            node.closed = now

    def forget(self, number: int) -> None:
        """Forget a node that has ended properly."""
        self._nodes.pop(number, None)
        self._awaited.discard(number)

    def look(self, now: float, is_missed: Callable[[], bool] = lambda: False) -> Changes:
        """Return the nodes whose state has changed. `is_missed`: whether all others wait for them."""
        slept = now - self._looked >= SLEPT
        if slept:
            for node in self._nodes.values():
                if not node.silent:
                    node.pinged = node.first_ping = None
        self._looked = now
        for number in self._awaited:  # they did not come back in time
            self._nodes[number] = _Node(None, now, time.time(), closed=now, silent=True)
        self._awaited.clear()
        changes = Changes([], [], [], slept)
        for number, node in self._nodes.items():
            if node.gone:
                continue
            if node.closed is None:
                self._ping(node, now)
                mute = _owes_acknowledgement(node, now)
                node.frozen = not mute and self._is_mute(node, now) and (node.silent or is_missed())
                silent = mute or node.frozen
                if silent != node.silent:
                    node.silent = silent
                    (changes.silent if silent else changes.back).append(number)
            if (node.closed is not None or node.silent) and self._is_given_up(node, now):
                node.gone = True
                changes.gone.append(number)
        return changes

    def _is_mute(self, node: _Node, now: float) -> bool:
        """Whether the node has been silent for long enough for a notice."""
        patience = max(self._notice_after - QUIET, UNCONFIRMED)
        return node.first_ping is not None and now - node.first_ping >= patience

    def _is_given_up(self, node: _Node, now: float) -> bool:
        if node.closed is not None:
            # If a connection timed out while the node was silent, it may come back when the network does.
            patience = min(GONE, self._kill_after) if node.silent else CLOSED
            return now - node.closed >= patience
        return now - node.received >= (self._kill_after if node.frozen else min(GONE, self._kill_after))

    def _ping(self, node: _Node, now: float) -> None:
        if now - node.received < QUIET:
            return
        assert node.session is not None
        if node.pinged is None or (now - node.pinged >= _PING_EVERY and not node.session.unconfirmed()):
            node.pinged = now
            node.first_ping = now if node.first_ping is None else node.first_ping
            node.session.send(Ping())


def _owes_acknowledgement(node: _Node, now: float) -> bool:
    if node.session is None or node.pinged is None or now - node.pinged < UNCONFIRMED:
        return False
    return node.session.unconfirmed() >= UNCONFIRMED


LATE = 10.0
"""Seconds after the last supervisor has joined before the missing ones are reported."""
GIVEN_UP = 60.0
"""Seconds until the job ends. A supervisor needs less than one, or a few on a busy machine; it repeats a lost
call within thirty."""
NONE_CAME = 300.0
"""Seconds of patience if no node has come. If a scheduler's controller was away for a moment, it may wait two
minutes before it asks again."""

_LOOK_EVERY = 0.3


class JoinFault(NamedTuple):
    """The verdicts on missing supervisors, and whether the job ends with them."""

    verdicts: list[Verdict]
    certain: bool


class SupervisorJoin:
    """The supervisors that have joined after the release, and the verdicts on those that have not."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._plan = record.plan
        self._step = SchedulerLog(record.path(Files.STEP), record.plan.names)
        self._platform = platforms.named(record.plan.platform)
        self._here: set[int] = set()
        self._last: Optional[float] = None  # when the last one came, or all were released
        self._looked = float("-inf")
        self._reported = False

    def resume(self, here: Iterable[int], now: float) -> None:
        """Note the nodes that had already joined an earlier hub."""
        self._here, self._last = set(here), now

    def note_joined(self, node: int, host: str, now: float) -> None:
        """Note that the node's supervisor has joined.

        Raises ContractError for a node that the job does not have, and before the release. A hub that was
        started again and knows nothing of the gate does let supervisors in.
        """
        if not 0 <= node < self._plan.nodes:
            raise codec.ContractError(f"node {node} joins a job of {self._plan.nodes} nodes")
        if self._record.check_ins and self._record.agreed is None:
            raise codec.ContractError(f"node {node} joins before the release")
        self._record.update_node(node, host=host, phase=Phase.RENDEZVOUS)
        if node in self._here:
            return
        self._here.add(node)
        self._last = now
        if self._reported and not self._missing():
            self._record.add_event("notice", "no node is missing any more; all are starting their ranks")
            self._record.wait_for([])
            self._record.set_verdicts([])

    def look(self, now: float) -> Optional[JoinFault]:
        """Return the fault to report now, and whether it ends the job; None: no fault."""
        missing = self._missing()
        if not missing or now - self._looked < _LOOK_EVERY or not self._is_released():
            return None
        self._looked = now
        self._last = now if self._last is None else self._last
        self._step.listen(now)
        gone = [task for task in self._step.tasks.ended(now) if task.node in missing]
        if gone:
            why = arrivals.ended_early(gone, self._plan.names, self._platform, arrivals.RANKS)
            return JoinFault([why], certain=True)
        waited = now - self._last
        certain = waited >= self._patience() and not self._ranks_run()
        if not certain and (waited < LATE or self._reported or not self._here):
            return None
        self._reported = True
        self._record.wait_for(missing)
        if not self._here:
            return JoinFault([arrivals.none_started(self._platform, waited)], certain)
        return JoinFault([arrivals.awaited_ranks(missing, self._plan.names, self._platform, waited)], certain)

    def _missing(self) -> list[int]:
        return sorted(self._record.members - self._here)

    def _is_released(self) -> bool:
        """Whether this hub released the gate: a restarted hub does not know which gates have left."""
        past = bool(self._here) or self._record.phase not in (Phase.STARTING, Phase.GATE)
        return past and self._record.agreed is not None

    def _patience(self) -> float:
        """Return the seconds to wait: longer before any has joined, as the scheduler may still start them."""
        return GIVEN_UP if self._here else max(NONE_CAME, self._plan.gate.timeout)

    def _ranks_run(self) -> bool:
        """Whether any rank runs: then the missing supervisors exist, and just do not reach the hub."""
        later = Phase.ORDER[Phase.ORDER.index(Phase.RENDEZVOUS) + 1 :]
        return any(self._record.nodes[node].phase in later for node in self._here)
