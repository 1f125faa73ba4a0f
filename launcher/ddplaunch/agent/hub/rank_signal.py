"""The job file's signal for the ranks: when it is due, who has it, and how long the ranks may take."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Files, JobPlan
from ddplaunch.agent.contract.messages import Signalled, SignalRanks
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, send_all
from ddplaunch.agent.text.ranges import some

_ANSWERS = 10.0
"""Seconds for all nodes to say who got it: they wait for ranks that start just now."""
_THEIRS = 0.75
"""The part of the time before the end that is the ranks' own. The rest is for what ends the job."""


class RankSignal:
    """The signal of one attempt. `sessions`: the caller's own mapping; `now`: the monotonic clock."""

    def __init__(self, plan: JobPlan, record: JobRecord, sessions: Mapping[int, Session]) -> None:
        self._signal = plan.signal
        self._platform = platforms.named(plan.platform)
        self._record = record
        self._sessions = sessions
        self._has_looked = False
        self._due: Optional[float] = None
        self._left = 0.0  # seconds from `_due` to the end
        self._sent_at: Optional[float] = None
        self._before = ""  # what comes
        self._answers: dict[int, Signalled] = {}
        self._first: Optional[int] = None  # ranks that had it in the first sentence
        self._sentence = ""

    def end_is_near(self, now: float) -> None:
        """Note that the scheduler is about to end the job. Where it does not say when, that is now."""
        if not self._look(now) and self._signal is not None and self._sent_at is None:
            self._due, self._left, self._before = now, self._signal.before, "the end"

    def _look(self, now: float) -> bool:
        """Ask the scheduler for the end, which may have changed. Returns False where it does not say."""
        if self._signal is None or self._sent_at is not None or (ends := self._platform.ends_in()) is None:
            return False
        self._due = now + max(0.0, ends.seconds - self._signal.before)
        self._left, self._before = min(ends.seconds, self._signal.before), ends.what
        return True

    def node_stops(self, node: int, now: float) -> None:
        """Note that a node is being stopped, and its ranks got the signal: so do those of all others."""
        if self._signal is not None and self._sent_at is None and self._platform.stops_single_nodes:
            self._send(now, f"{self._record.node_name(node)} is being stopped")

    def tick(self, now: float) -> None:
        """Send it when it is due, and say who got it."""
        if self._sent_at is None and self._is_due(now):
            self._send(now, f"{max(0.0, self._left):.0f} s before {self._before}")
        if self._sent_at is not None:
            waits = self._sessions.keys() - self._answers.keys()
            if not waits or now >= self._sent_at + _ANSWERS:
                self._report()

    def joined(self, session: Session, now: float) -> None:
        """Have a node send it that comes, or comes back, when the others have it."""
        if self._sent_at is not None:
            session.send(SignalRanks())
        elif not self._has_looked:
            self._has_looked = True
            self._look(now)

    def answered(self, node: int, answer: Signalled) -> None:
        """Note a node's answer, which replaces an earlier one."""
        self._answers[node] = answer

    def gives_time(self, ended: Set[int], now: float) -> bool:
        """Whether ranks may still be in their handlers: nothing but their own launch commands ends them."""
        if self._signal is None or self._sent_at is None or self._record.members <= ended:
            return False
        return now < self._sent_at + self._signal.before * _THEIRS

    @property
    def given(self) -> bool:
        """Whether the ranks got the signal, or are about to."""
        return self._sent_at is not None

    def _is_due(self, now: float) -> bool:
        if self._due is None or now < self._due or not self._sessions:
            return False
        self._look(now)  # the limit may have been extended
        return now + 1.0 >= self._due

    def _send(self, now: float, why: str) -> None:
        self._sent_at, self._before = now, why
        # The next attempt depends on it, also when this hub is killed.
        with contextlib.suppress(OSError), open(self._record.path(Files.SIGNALLED), "w") as file:
            file.write(f"{why}\n")
        send_all(self._sessions.values(), SignalRanks())

    def _report(self) -> None:
        """Say which ranks have it; again, where ranks have got it since."""
        assert self._signal is not None
        sent = sum(each.sent for each in self._answers.values())
        deaf = sorted(rank for each in self._answers.values() for rank in each.deaf)
        if self._first is None:
            self._first = sent
        text = f"sent {self._signal.name[3:]} to {sent} rank{'s' * (sent != 1)}: {self._before}"
        if sent > self._first:
            text += f", to {sent - self._first} of them later"
        if deaf:
            text += f"; {some('rank', deaf)} {'has' if len(deaf) == 1 else 'have'} no handler for it"
        if text != self._sentence:
            self._sentence = text
            self._record.signalled(text)
