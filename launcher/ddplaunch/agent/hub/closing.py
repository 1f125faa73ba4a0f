"""The end of a running job: written down, sent to all nodes, complete when they have left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from ddplaunch.agent.contract import Exit, JobEvidence, Verdict
from ddplaunch.agent.hub.ending import farewell
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, tell

FAREWELL = 45.0
"""Seconds for all nodes to end, torchrun's own patience included, before the hub goes without them."""
UNWRITTEN = 1.0
"""Seconds for the disk to take the status of a node that has finished. Then the node leaves all the same."""


class Closing:
    """One end for all nodes, with one reason. `sessions` are the caller's; `now` is the monotonic clock."""

    def __init__(self, record: JobRecord, sessions: Mapping[int, Session]) -> None:
        self.exit_code: Optional[int] = None
        self.leave_at: Optional[float] = None
        self._record = record
        self._sessions = sessions
        self._leaving: dict[Session, float] = {}  # since when their `finished` is known

    def resume(self, now: float) -> None:
        """An earlier hub may have begun it."""
        if self._record.decided is not None:
            self.exit_code, self.leave_at = self._record.decided, now + FAREWELL

    def begin(self, code: int, verdicts: list[Verdict], evidence: Optional[JobEvidence], now: float) -> None:
        self.exit_code, self.leave_at = code, now + FAREWELL
        self._record.decide(code)
        self._record.judge(self._record.placed(verdicts), evidence)
        for verdict in self._record.verdicts:
            self._record.event("verdict", f"{verdict.code}: {verdict.sentence}")
        self._tell(code)

    def all_done(self, codes: set[int], gone: bool) -> None:
        """Every node has ended and none had to be judged: well, or by what the nodes themselves say."""
        if codes == {Exit.OK} and not gone:
            self._record.judge([])
            self._record.event("end", "all ranks have finished")
        self.exit_code = max(codes, default=Exit.NODE_AT_FAULT)
        self._record.end(self.exit_code)
        self._tell(self.exit_code)

    def _tell(self, code: int) -> None:
        tell(self._sessions.values(), "end", farewell(code, self._record.verdicts))

    def wants_to_go(self, session: Session, now: float) -> None:
        """A node has finished. It goes once our files say so: a hub in our place must not wait for it."""
        self._leaving[session] = now

    def has_gone(self, session: Session) -> None:
        self._leaving.pop(session, None)

    def let_go(self, now: float) -> None:
        for session, since in list(self._leaving.items()):
            if self._record.is_written or now - since >= UNWRITTEN:
                del self._leaving[session]
                session.send("noted", {})
