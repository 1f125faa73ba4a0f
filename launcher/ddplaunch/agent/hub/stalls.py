"""Decides when to collect evidence, from what nodes report about their ranks. Pure: time is an argument.

Ranks do something, compute, or do nothing: `supervisor.rank_progress` has the model. Here two clocks use it.

**The notice.** How quiet a rank is, is measured in seconds of patience: the time since it last did something
or computed. For a rank that only computes, this clock runs BUSY times slower, and START times slower before
the first collective and while no rank waits for it. For a rank that waits in a collective, it is the time
since the rank last did something, however much CPU it uses (NCCL spins). While NCCL makes its first
communicator on all ranks, every clock runs START times slower. The job is as quiet as its liveliest rank.

**The end.** `kill_after` is the time in which no rank has done anything. It is a promise: while any rank
waits, computing does not put the end off. If no rank waits it does, because a long computation looks the same
as an endless one. Imports have IMPORTS seconds. If `kill_after` is not set, the job ends no sooner than torch
itself would end the wait: after the longest timeout of the ranks' groups. If no rank has a group, or a rank
computes while none waits, the job is not ended, because torch would not end it either.
"""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Beat, NodeWait, Phase, RankBeat, WatchdogPlan
from ddplaunch.agent.diagnosis.run.slow import BUSY, quiet_for
from ddplaunch.agent.system import phrases

START = 12.0
"""How many times longer than a still rank one may use CPU without progress, before the first collective
(imports, data, compilers) and while no rank waits for it. Later, and with others waiting, it is BUSY."""
LAUNCHES = 1.5
"""How many times `kill_after` a launch command may take while ranks on other nodes wait for it."""
COMPUTED = 2.0
"""Seconds after a rank last did something from when on its CPU time counts as a computation."""
IMPORTS = 30.0
"""Seconds for which a rank may compute before it has a group: loading a library shows nothing new."""
TORCH_FIRST = 30.0
"""Seconds after a group's timeout that torch has to end the wait with its own error."""
LONG = 12.0
"""Multiple of the patience after which waiting ranks are looked at although others move. With several worlds,
whose ranks never wait for one another, the patience itself is enough."""
AGE = 2.0
"""A beat's age counts as quiet up to this many seconds, because a starved supervisor's silence is no hang."""
FRESH = 3.0
"""Seconds without a beat after which a node counts as silent in `is_waiting_for_silent`."""
SILENT = 30.0
"""Seconds without a beat after which a node no longer keeps the others from being judged."""
LAUNCH = 60.0
"""Seconds a launch command may take before it has workers: torchrun imports torch and waits for its peers.
Workers, which import torch as well, may take as long before their first collective."""
QUIET = 3.0
"""Seconds of waiting after which the status mentions it."""
AGAIN = 2.0
"""After a pause that ended by itself, the patience becomes this many times the pause."""


@dataclass
class _LastBeat:
    beat: Beat
    at: float
    launching_since: float


class StallDetector:
    """Takes every beat, and decides at every tick. Times are seconds on the hub's own clock."""

    def __init__(self, plan: WatchdogPlan, members: Set[int]) -> None:
        """Start to watch. `members`: the job's nodes, a set that its owner may change meanwhile."""
        self.patience = plan.notice_after
        self._notice_after = plan.notice_after
        self._kill_after = plan.kill_after
        self._patient = bool(plan.patient)
        self._members, self._forgotten = members, set[int]()
        self._last: dict[int, _LastBeat] = {}
        self._first: Optional[float] = None
        self._changed = float("-inf")  # when a rank came or went, or the hub woke
        self._noticed: Optional[tuple[float, int, frozenset[int]]] = None  # time, collectives, living ranks
        self._killing = False
        self._looked_at = float("-inf")  # when a long wait was last looked at
        self._not_before = float("-inf")
        self.init_calls = InitCalls()

    def add(self, beat: Beat, now: float) -> None:
        old = self._last.get(beat.node)
        launching = now if old is None or old.beat.ranks else old.launching_since
        self._last[beat.node] = _LastBeat(beat, now, launching)
        self._first = now if self._first is None else self._first
        if old is not None and _living(old.beat) != _living(beat):
            self._changed = now

    def forget(self, node: int, now: float) -> None:
        """Forget a node that has ended or is lost."""
        if self._last.pop(node, None) is not None:
            self._changed = now
        self._forgotten.add(node)

    def decide(self, now: float) -> Optional[str]:
        """Return why evidence must be collected now, once per state of the job; None: not now.

        While no rank has been seen on any node, it is collected every LAUNCH seconds.

        "still": nothing moves, for a notice. "deadline": nothing has moved for `kill_after`. "asked": some
        ranks have waited long while others move: slowness, or a fault that never ends. "apart": the same, but
        the others may belong to another world.
        """
        quiet = self.quiet_for(now)
        if quiet is None or self._killing or now < self._not_before:
            return None
        if self._is_over(now):
            self._killing = True
            return "deadline"
        if quiet >= self.patience:
            living, noticed = self._living(), self._noticed
            if noticed is None or noticed[2] != living or (not living and now - noticed[0] >= LAUNCH):
                self._noticed = (now, self.completed(), living)
                return "still"
            return None
        apart = self._worlds_are_several()
        long = self.patience if apart else LONG * self.patience
        if self._noticed is None and min(self.longest_wait(now), now - self._looked_at) >= long:
            self._looked_at = now
            return "apart" if apart else "asked"
        return None

    def is_moving_again(self, now: float) -> bool:
        """Whether the job has moved since the last notice; true once. Such a pause raises the patience.

        It has moved if a rank has done something since, and either a collective was completed or no rank
        still waits as it did then. CPU time alone does not withdraw a notice, nor does a culprit that does
        something while the others wait on. The start of the ranks does not raise the patience: it says
        nothing about pauses in the training.
        """
        if self._noticed is None:
            return False
        noticed_at, completed, living = self._noticed
        since = now - noticed_at
        freed = self.completed() > completed or self.longest_wait(now) < since
        if not (freed and self._has_done_something(now, since, started=not living)):
            return False
        learned = AGAIN * (since + self.patience)
        most = learned if self._kill_after is None else self._kill_after / 2  # so that the notice comes first
        if living:
            self.patience = max(self.patience, min(learned, most))
        self._noticed, self._killing = None, False
        return True

    def _has_done_something(self, now: float, since: float, started: bool) -> bool:
        """Whether a living rank has, within `since` seconds; `started`: it is enough that one exists."""
        return any(
            started or rank.stuck_for + now - last.at <= since
            for last in self._last.values()
            for rank in last.beat.ranks
            if rank.alive
        )

    def stand_down(self, now: float, at_least: float = 0.0) -> None:
        """Start again after half the patience, at least `at_least` seconds: the evidence shows no hang."""
        self._noticed, self._killing = None, False
        self._not_before = now + max(self.patience / 2, at_least)

    def wake(self, now: float) -> None:
        """Restart the patience with all ranks: the hub itself was frozen, and got no beats."""
        self._changed = now

    def quiet_for(self, now: float) -> Optional[float]:
        """Return the seconds of patience used up; None while some node has sent no beat, or no rank lives."""
        awaited = self._members - self._last.keys() - self._forgotten
        if self._first is None or (awaited and now - self._first < LAUNCH):
            return None
        waited_for = any(
            rank.alive and rank.waits for last in self._last.values() for rank in last.beat.ranks
        )
        slower = START if self._makes_communicators() else 1.0
        quiets = [
            quiet / slower
            for last in self._last.values()
            if now - last.at < SILENT
            for quiet in self._quiets(last, now, waited_for)
        ]
        # Beats are up to a second apart: one may still show a wait for a rank whose end another has shown.
        return min(*quiets, now - self._changed) if quiets else None

    def kill_after(self) -> Optional[float]:
        """Return the seconds without anything done after which the job is ended; None if it is not ended.

        If it is not set, it follows from the ranks' present groups.
        """
        if self._kill_after is None or not self._patient:
            return self._kill_after
        ranks = [rank for last in self._last.values() for rank in last.beat.ranks if rank.alive]
        timeouts = [rank.timeout for rank in ranks if rank.timeout is not None]
        waiting = any(rank.waits for rank in ranks)
        if not waiting and (not timeouts or any(_computes(rank) for rank in ranks)):
            return None
        return max(self._kill_after, max(timeouts, default=0.0) + TORCH_FIRST)

    def deadline_text(self, now: float, wall: float) -> str:
        """Return when the job will be ended if nothing moves, and why then; `wall`: now, since the epoch."""
        kill_after = self.kill_after()
        if kill_after is None:
            return "the job is not ended for this: " + (
                "kill_after is never"
                if self._kill_after is None
                else "torch would not end it either, and kill_after is not set"
            )
        at = time.strftime("%H:%M:%S", time.localtime(wall + max(0.0, kill_after - self.stuck_for(now))))
        why = f"kill_after is {phrases.span(kill_after)}"
        if self._patient and self._kill_after is not None and kill_after > self._kill_after:
            why = f"the longest timeout of its process groups is {phrases.span(kill_after - TORCH_FIRST)}"
        return f"the job will be ended at {at} unless a rank moves before then: {why}"

    def stuck_for(self, now: float) -> float:
        """Return the seconds of `kill_after` used up. Defined only if `quiet_for` is not None."""
        beats = [each for each in self._last.values() if now - each.at < SILENT]
        ranks = [rank for each in beats for rank in each.beat.ranks if rank.alive]
        waiting = any(rank.waits for rank in ranks)
        starts = LAUNCH if self._makes_communicators() else 0.0
        stuck = [
            max(0.0, _counted(rank, age, waiting) - starts)
            for each in beats
            for age in [min(now - each.at, AGE)]
            for rank in each.beat.ranks
            if rank.alive
        ]
        launching = [now - each.launching_since for each in beats if not each.beat.ranks]
        if waiting:
            stuck += [seconds / LAUNCHES if seconds >= LAUNCH else 0.0 for seconds in launching]
        else:
            stuck += [seconds * self._notice_after / LAUNCH for seconds in launching]
        return min(*stuck, now - self._changed)

    def launching_for(self, now: float) -> float:
        """Return for how long no rank has been seen on any node; 0 once one has been."""
        beats = self._last.values()
        return min((0.0 if each.beat.ranks else now - each.launching_since for each in beats), default=0.0)

    def since_progress(self, now: float) -> list[float]:
        """Return for each living rank the seconds since its last progress."""
        return [
            rank.stuck_for + now - last.at
            for last in self._last.values()
            for rank in last.beat.ranks
            if rank.alive
        ]

    def is_waiting_for_silent(self, now: float) -> bool:
        """Whether the nodes that send beats have only waited for `patience`, and so wait for silent ones."""
        fresh = [each for each in self._last.values() if now - each.at < FRESH]
        quiets = [quiet for each in fresh for quiet in self._quiets(each, now, True)]
        waits = any(rank.alive and rank.waits for each in fresh for rank in each.beat.ranks)
        return waits and min(quiets) >= self.patience

    def longest_wait(self, now: float) -> float:
        """Return the longest wait of a rank in one collective, in seconds; 0 while none waits."""
        waits = [
            rank.stuck_for + min(now - last.at, AGE)
            for last in self._last.values()
            for rank in last.beat.ranks
            if rank.alive and rank.waits
        ]
        return max(waits, default=0.0)

    def completed(self) -> int:
        """Return the collectives completed, summed over all ranks."""
        return sum(rank.completed for last in self._last.values() for rank in last.beat.ranks)

    def _is_over(self, now: float) -> bool:
        kill_after = self.kill_after()
        return kill_after is not None and self.stuck_for(now) >= kill_after

    def _worlds_are_several(self) -> bool:
        """Whether two living ranks have the same number: a script has started two launchers side by side."""
        living = [rank.rank for last in self._last.values() for rank in last.beat.ranks if rank.alive]
        return len(living) > len(set(living))

    def _makes_communicators(self) -> bool:
        """Whether NCCL is making its first communicator on all living ranks, which may take minutes."""
        beats = [last.beat for last in self._last.values()]
        living = [rank for beat in beats for rank in beat.ranks if rank.alive]
        return (
            bool(living) and all(beat.ranks for beat in beats) and all(r.makes_communicator for r in living)
        )

    def _living(self) -> frozenset[int]:
        return frozenset().union(*(_living(last.beat) for last in self._last.values()))

    def _quiets(self, last: _LastBeat, now: float, waited_for: bool) -> list[float]:
        """Return the seconds without progress of a node's living ranks, or of its launch command."""
        if not last.beat.ranks:
            return [(now - last.launching_since) * self.patience / LAUNCH]
        age = min(now - last.at, AGE)
        return [_quiet(rank, age, waited_for) for rank in last.beat.ranks if rank.alive]


def _living(beat: Beat) -> frozenset[int]:
    return frozenset(rank.rank for rank in beat.ranks if rank.alive)


def _computes(rank: RankBeat) -> bool:
    """Whether it has computed since it last did something, and not only in the seconds after that."""
    return not rank.waits and rank.stuck_for - rank.still_for >= COMPUTED


def _counted(rank: RankBeat, age: float, waiting: bool) -> float:
    """Return the seconds of `kill_after` that the rank has used up; `waiting`: whether any rank waits."""
    stuck = rank.stuck_for + age
    if not _computes(rank):
        return stuck
    if rank.phase == Phase.INIT and stuck < IMPORTS:
        return 0.0
    return stuck if waiting else min(stuck, rank.still_for + age)


def _has_started(rank: RankBeat) -> bool:
    return rank.phase in (Phase.RUNNING, Phase.FINALIZING)


def _quiet(rank: RankBeat, age: float, waited_for: bool) -> float:
    busy = BUSY if _has_started(rank) and waited_for else START
    return quiet_for(rank.stuck_for + age, rank.still_for + age, rank.waits, busy)


def node_wait(beat: Beat, now: float) -> Optional[NodeWait]:
    """Return which ranks of the node have waited for QUIET seconds; None: none. `now`: since the epoch."""
    living = [rank for rank in beat.ranks if rank.alive]
    waiting = [rank for rank in living if rank.waits and rank.stuck_for >= QUIET]
    if not waiting:
        return None
    since = now - min(rank.stuck_for for rank in waiting)
    return NodeWait(
        since, [rank.rank for rank in waiting], [rank.rank for rank in living if rank not in waiting]
    )


CALLS_SETTLE = 1.0
"""Seconds after the last report, for peers that call at the same time."""
CALLS_LATEST = 3.0
"""Seconds after the first report, however many more come."""


class InitCalls:
    """Ranks that have just called init_process_group: when to compare their calls.

    A node reports a rank's call, and once more when it has looked up the call's address. All reports are
    judged together within seconds, long before init_process_group times out. `now` is the monotonic clock.
    """

    def __init__(self) -> None:
        self._first: Optional[float] = None
        self._last = 0.0

    def note_call(self, now: float) -> None:
        """Note a rank's call."""
        self._first = now if self._first is None else self._first
        self._last = now

    def take_due(self, now: float) -> bool:
        """Whether to compare the calls now; true once for all that have been reported."""
        if self._first is None or now < min(self._last + CALLS_SETTLE, self._first + CALLS_LATEST):
            return False
        self._first = None
        return True
