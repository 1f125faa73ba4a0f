"""The end of a running job: who stops it from outside, its exit code, the last message to its nodes.

A pod that is deleted, drained or preempted gets SIGTERM; the other pods get no message. A job that is
cancelled gets SIGTERM on all nodes at nearly the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set
from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import REGROUP, Exit, Files, JobEvidence, JobPlan, Verdict
from ddplaunch.agent.contract.messages import END_GRACE, End, Noted, Signalled, SignalRanks
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import NodeSessions, Session
from ddplaunch.agent.text.quantities import count, some

BY_ENDING = frozenset(["node-evicted", "rank-killed", "launch-failed", "network-lost", "unknown"])
"""Verdicts on ranks and nodes that may only show that they are being ended from outside."""
TOGETHER = 5.0
"""Seconds in which SIGTERM reaches all nodes of a job that is ended as a whole, on busy machines too."""


class Eviction:
    """The nodes that are being stopped from outside. Times are the monotonic clock."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._stopping: dict[int, str] = {}  # node -> the signal or command that stops it
        self._since: Optional[float] = None
        self.noticed = False  # the others have a notice of it

    def note_stopping(self, node: int, how: str, now: float) -> bool:
        """Note that `node` is being stopped. Returns whether it is the first."""
        first = self._since is None
        self._since = now if self._since is None else self._since
        self._stopping.setdefault(node, how)
        return first

    @property
    def has_begun(self) -> bool:
        """Whether any node is being stopped."""
        return self._since is not None

    @property
    def nodes(self) -> list[int]:
        """Return the nodes that got SIGTERM while others did not; empty when all got it, or none."""
        return sorted(self._stopping) if len(self._stopping) < len(self._record.members) else []

    @property
    def how(self) -> str:
        """Return the signal or command that stopped the first of them."""
        return next(iter(self._stopping.values()), "")

    def is_settled(self, now: float) -> bool:
        """Whether it is known by now which nodes are being stopped: all, or those noted so far."""
        known = self._record.members <= self._stopping.keys() | self._record.finished.keys()
        return self._since is None or known or now >= self._since + TOGETHER

    def is_due(self, now: float) -> bool:
        """Whether the others need a notice."""
        return bool(self.nodes) and not self.noticed and self.is_settled(now)


_ANSWERS = 10.0
"""Seconds for all nodes to report which ranks got it: nodes wait for ranks that are just starting."""
_THEIRS = 0.75
"""The share of the time before the end that belongs to the ranks. The rest is for ending the job."""


class RankSignal:
    """The job file's signal to the ranks, once per attempt: when it is due, who has it, how long they have.

    The scheduler is asked when the job will end, once when the first node joins and once when the signal is
    due. Under Slurm the whole hub waits for `scontrol`, at most the two seconds of `platforms.slurm`: too
    short for any node to count as silent, and too rare to be worth a thread.
    """

    def __init__(self, plan: JobPlan, record: JobRecord, sessions: NodeSessions) -> None:
        self._signal = plan.signal
        self._platform = platforms.named(plan.platform)
        self._record = record
        self._sessions = sessions
        self._has_looked = False
        self._due: Optional[float] = None
        self._left = 0.0  # seconds from `_due` to the end
        self._sent_at: Optional[float] = None
        self._before = ""  # what follows the signal; once that is sent, why it was sent
        self._answers: dict[int, Signalled] = {}
        self._first: Optional[int] = None  # how many ranks had it in the first sentence
        self._sentence = ""

    def expect_end(self, now: float) -> None:
        """Note that the scheduler is about to end the job: now, unless it says when."""
        if not self._look(now) and self._signal is not None and self._sent_at is None:
            self._due, self._left, self._before = now, self._signal.before, "the end"

    def _look(self, now: float) -> bool:
        """Ask the scheduler when the job will end, as that may change. Returns False if it does not say."""
        if self._signal is None or self._sent_at is not None or (ends := self._platform.ends_in()) is None:
            return False
        self._due = now + max(0.0, ends.seconds - self._signal.before)
        self._left, self._before = min(ends.seconds, self._signal.before), ends.what
        return True

    def note_stopping(self, node: int, now: float) -> None:
        """Note that a node is being stopped and its ranks got the signal; all other ranks get it too."""
        if self._signal is not None and self._sent_at is None and self._platform.stops_single_nodes:
            self._send(now, f"{self._record.node_name(node)} is being stopped")

    def tick(self, now: float) -> None:
        """Send the signal when it is due, and report who got it."""
        if self._sent_at is None and self._is_due(now):
            self._send(now, f"{max(0.0, self._left):.0f} s before {self._before}")
        if self._sent_at is not None:
            waits = self._sessions.nodes - self._answers.keys()
            if not waits or now >= self._sent_at + _ANSWERS:
                self._report()

    def note_joined(self, session: Session, now: float) -> None:
        """Let a node that joins late, or again, send its ranks the signal that the others got."""
        if self._sent_at is not None:
            session.send(SignalRanks())
        elif not self._has_looked:
            self._has_looked = True
            self._look(now)

    def note_answer(self, node: int, answer: Signalled) -> None:
        """Note a node's answer, which replaces an earlier one."""
        self._answers[node] = answer

    def has_time_left(self, gone: Set[int], now: float) -> bool:
        """Whether ranks may still be in their handlers: then only their own launch commands end them."""
        if (
            self._signal is None
            or self._sent_at is None
            or self._record.members <= gone | self._record.finished.keys()
        ):
            return False
        return now < self._sent_at + self._signal.before * _THEIRS

    @property
    def is_given(self) -> bool:
        """Whether the ranks got the signal, or are about to."""
        return self._sent_at is not None

    def _is_due(self, now: float) -> bool:
        if self._due is None or now < self._due or not self._sessions.nodes:
            return False
        self._look(now)  # the limit may have been extended
        return now + 1.0 >= self._due

    def _send(self, now: float, why: str) -> None:
        self._sent_at, self._before = now, why
        # The next attempt depends on this file, even if this hub is killed.
        with contextlib.suppress(OSError), open(self._record.path(Files.SIGNALLED), "w") as file:
            file.write(f"{why}\n")
        self._sessions.send_to_all(SignalRanks())

    def _report(self) -> None:
        """Report which ranks have got the signal, and report again if more have got it since."""
        assert self._signal is not None
        sent = sum(each.sent for each in self._answers.values())
        deaf = sorted(rank for each in self._answers.values() for rank in each.deaf)
        if self._first is None:
            self._first = sent
        text = f"sent {self._signal.name[3:]} to {count(sent, 'rank')}: {self._before}"
        if sent > self._first:
            text += f", to {sent - self._first} of them later"
        if deaf:
            text += f"; {some('rank', deaf)} {'has' if len(deaf) == 1 else 'have'} no handler for it"
        if text != self._sentence:
            self._sentence = text
            self._record.note_signal(text)


CHECKPOINT = 30.0
"""Seconds that the ranks have between SIGTERM and SIGKILL at REGROUP: they may write a checkpoint."""


def farewell(code: int, verdicts: Sequence[Verdict]) -> End:
    """Return the last message to every node."""
    return End(code, list(verdicts), CHECKPOINT if code == REGROUP else END_GRACE)


BACK_TO_GATE = farewell(REGROUP, [])
"""Answer to a supervisor of an earlier attempt that lost its connection and so missed the last message."""


def exit_code(verdicts: Sequence[Verdict], finished: Mapping[int, int]) -> int:
    """Return the job's exit code: the first verdict's, otherwise the first failed node's, otherwise 0."""
    if verdicts and verdicts[0].code != "unknown":
        return catalogue.exit_code(verdicts[0])
    return next(filter(None, finished.values()), Exit.WORKER_FAILED)


FAREWELL = 45.0
"""Seconds for all nodes to end, including torchrun's own patience, before the hub goes without them."""
UNWRITTEN = 1.0
"""Seconds for the status of a finished node to reach the disk. After that the node may leave anyway."""


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
                self._record.evidence = None  # kept with the attempt that failed
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
