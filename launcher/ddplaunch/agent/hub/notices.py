"""Notices: what is wrong with a job that still runs, sent to all nodes once each."""

from __future__ import annotations

from collections.abc import Mapping

from ddplaunch.agent.contract import JobEvidence, Verdict, codec
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, tell

SIGN = 2.0
"""Seconds between two signs of life to every supervisor: one that hears none keeps the watch by itself."""


class Notices:
    """`sessions`: the nodes that are told; the caller's own mapping, which changes."""

    def __init__(self, record: JobRecord, sessions: Mapping[int, Session]) -> None:
        self._record = record
        self._sessions = sessions
        self._last: object = None  # code and ranks of the last notice
        self._signed = float("-inf")

    def sign(self, now: float) -> None:
        """Show the nodes that a hub is there; `now` is the monotonic clock."""
        if now - self._signed >= SIGN:
            self._signed = now
            tell(self._sessions.values(), "alive", {})

    def give(self, verdicts: list[Verdict], evidence: JobEvidence) -> None:
        """Say it once; again only when other ranks are at fault, or something else is wrong."""
        notice = [(verdict.code, verdict.ranks) for verdict in verdicts]
        if not verdicts or notice == self._last:
            return
        self._last = notice
        verdicts = self._record.placed(verdicts)
        for verdict in verdicts:
            self._record.event("notice", f"{verdict.code}: {verdict.sentence}")
        if all(verdict.code == "slow" for verdict in verdicts):
            return  # no alarm
        self._record.judge(verdicts, evidence)
        tell(self._sessions.values(), "notice", {"verdicts": codec.dump(verdicts), "why": evidence.why})

    def forget(self) -> None:
        """Let the next notice be given, whatever it says."""
        self._last = None

    def withdraw(self) -> None:
        """Clear the verdicts: the job is well again."""
        self._last = None
        self._record.judge([])
