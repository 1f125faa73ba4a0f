"""The end of a running job: its exit code, the last message to its nodes, and when all of them have left.

`run` calls it, when the end is certain. It does not judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from ddplaunch.agent.contract import REGROUP, Exit, JobEvidence, Verdict
from ddplaunch.agent.contract.messages import END_GRACE, End, Noted
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import NodeSessions, Session

CHECKPOINT = 30.0
"""Seconds that the ranks have between SIGTERM and SIGKILL at REGROUP: they may write a checkpoint."""


def farewell(code: int, verdicts: Sequence[Verdict]) -> End:
    """Return the last message to every node."""
    return End(code, list(verdicts), CHECKPOINT if code == REGROUP else END_GRACE)


BACK_TO_GATE = farewell(REGROUP, [])
"""Answer to a supervisor of an earlier attempt that lost its connection and so did not get the end."""


def exit_code(verdicts: Sequence[Verdict], finished: Mapping[int, int]) -> int:
    """Return the job's exit code: the first verdict's, else that of the first node that failed, else 0."""
    if verdicts and verdicts[0].code != "unknown":
        return catalogue.exit_code(verdicts[0])
    return next(filter(None, finished.values()), Exit.WORKER_FAILED)


FAREWELL = 45.0
"""Seconds for all nodes to end, including torchrun's own patience, before the hub goes without them."""
UNWRITTEN = 1.0
"""Seconds for the status of a node that has finished to reach the disk. After that the node leaves all the
same."""


class Closing:
    """Ends the job for all nodes with one exit code and one reason. `now`: the monotonic clock."""

    def __init__(self, record: JobRecord, sessions: NodeSessions) -> None:
        self.exit_code: Optional[int] = None
        self.leave_at = 0.0  # when the hub ends, even if nodes are left; counts once `exit_code` is set
        self._record = record
        self._sessions = sessions
        self._leaving: dict[Session, float] = {}  # when each sent `finished`

    def resume(self, now: float) -> bool:
        """Go on with the end that an earlier hub decided. Returns False if it decided none."""
        self.exit_code, self.leave_at = self._record.decided, now + FAREWELL
        return self.exit_code is not None

    def begin(self, code: int, verdicts: list[Verdict], evidence: Optional[JobEvidence], now: float) -> None:
        self.exit_code, self.leave_at = code, now + FAREWELL + CHECKPOINT * (code == REGROUP)
        self._record.decide(code)
        self._record.set_verdicts(self._record.with_machines(verdicts), evidence)
        for verdict in self._record.verdicts:
            self._record.add_event("verdict", f"{verdict.code}: {verdict.sentence}")
        self._send_end(code)

    def conclude(self, codes: set[int], gone: bool) -> None:
        """End a job whose nodes have all ended without a verdict. `gone`: some nodes were lost."""
        if codes == {Exit.OK} and not gone:
            if self._record.failed_attempts:
                self._record.evidence = None  # it is kept with the attempt that failed
            self._record.set_verdicts([])
            self._record.add_event("end", "all ranks have finished")
        self.exit_code = max(codes, default=Exit.NODE_AT_FAULT)
        self._record.end(self.exit_code)
        self._send_end(self.exit_code)

    def _send_end(self, code: int) -> None:
        self._sessions.send_to_all(farewell(code, self._record.verdicts))

    def note_leaving(self, session: Session, checkpoint: str, now: float) -> None:
        """Note a node that has finished. It may leave once our files show that, so that no later hub waits
        for it.
        """
        self._leaving[session] = now
        if checkpoint and session.node is not None:
            self._record.update_node(session.node, detail=checkpoint)
            self._record.add_event("checkpoint", checkpoint, session.node)

    def forget(self, session: Session) -> None:
        self._leaving.pop(session, None)

    def let_leavers_go(self, now: float) -> None:
        for session, since in list(self._leaving.items()):
            if self._record.is_written or now - since >= UNWRITTEN:
                del self._leaving[session]
                session.send(Noted())
