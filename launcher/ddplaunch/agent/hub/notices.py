"""Notices: verdicts on a job that still runs, sent to all nodes once each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddplaunch.agent.contract import JobEvidence, Occasion, Verdict
from ddplaunch.agent.contract.messages import Alive, Notice
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, send_all
from ddplaunch.agent.system import phrases

SIGN = 2.0
"""Seconds between two Alive messages to every supervisor: without them it detects stalls by itself."""

STARTS = 300.0
"""Seconds for which no rank need be seen: until then the hub says that it waits, and notices no hang."""


class Notices:
    """Sends notices. `sessions`: the nodes to send to; the caller's own mapping, which changes."""

    def __init__(self, record: JobRecord, sessions: Mapping[int, Session]) -> None:
        self._record = record
        self._sessions = sessions
        self._given: list[object] = []  # codes and ranks of the notices so far, until one is withdrawn
        self._signed = float("-inf")

    def sign(self, now: float) -> None:
        """Send Alive to all nodes when it is due; `now` is the monotonic clock."""
        if now - self._signed >= SIGN:
            self._signed = now
            send_all(self._sessions.values(), Alive())

    def give(
        self,
        verdicts: list[Verdict],
        evidence: JobEvidence,
        launching_for: float = 0.0,
        deadline_text: str = "",
    ) -> None:
        """Send the notice once for the same codes and ranks at fault, and none when the job has ended.

        `launching_for`: seconds for which no rank has been seen on any node. That alone is no reason for one.
        `deadline_text`: when the job will be ended, as a fact of the first verdict.
        """
        notice = [(verdict.code, verdict.ranks) for verdict in verdicts]
        if notice == [("unknown", [])] and 0 < launching_for < STARTS:
            span = phrases.span(launching_for)
            self._record.event("waiting", f"waiting for the ranks to start: none has been seen for {span}")
            return
        if not verdicts or notice in self._given or self._record.exit_code is not None:
            return
        self._given.append(notice)
        verdicts = self._record.placed(verdicts)
        if deadline_text:
            verdicts = [replace(verdicts[0], facts=[*verdicts[0].facts, deadline_text]), *verdicts[1:]]
        for verdict in verdicts:
            self._record.event("notice", f"{verdict.code}: {verdict.sentence}")
        if all(verdict.code.startswith("slow") for verdict in verdicts):
            return  # no alarm
        self._record.judge(verdicts, evidence)
        self._record.send_message(Occasion.NOTICE)
        send_all(self._sessions.values(), Notice(verdicts, evidence.why))

    def forget(self) -> None:
        """Let the next notice be sent, even if it equals the last."""
        self._given.clear()

    def withdraw(self) -> bool:
        """Clear the verdicts: the job is well again. Returns whether there were any."""
        known = self._record.verdicts
        self._given.clear()
        self._record.judge([])
        if known:
            self._record.send_message(Occasion.WITHDRAWN)
        return bool(known)
