"""Attempts within the launch commands: which one runs, what failed in it, and when to judge that again.

torchrun starts its ranks again, a script starts another torchrun, a program calls mp.spawn once more. Each
node reports in its heartbeats that it has new ranks. The first node that reports this for the second time
begins the job's next attempt. Until another node follows, that node's ended ranks belong to the attempt
before.

Only `run` calls this. Pure: time is an argument.
"""

from __future__ import annotations

import signal
from collections.abc import Set
from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Exit, JobEvidence, Phase, Verdict
from ddplaunch.agent.hub.job_record import JobRecord

SETTLE = 1.0
"""Seconds to wait after the first death for reports from other nodes, so that the first cause is known."""
LAST = 3.0
"""Seconds that a launch command has to end after a failure, before there is a notice. If it ends, the verdict
comes, and a notice would only say the same."""
DOUBT = 2.0
"""Seconds until the next judgement."""
LEAVING = 20.0
"""Seconds for which to judge again while a living rank is finalizing, because its exit status is still
missing."""


@dataclass
class Failure:
    """The verdicts on deaths of the present attempt, while the launch command goes on."""

    verdicts: list[Verdict]
    evidence: JobEvidence
    due: float  # when a notice of it is due
    by_agents: bool = False  # torchrun's agents may have sent these ranks away, to go on with other nodes
    noticed: bool = False


class LaunchAttempts:
    """`now` is the monotonic clock."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._counts: dict[int, int] = {}  # attempts that each node has reported
        self._behind: set[int] = set()
        self._least: dict[int, int] = {}
        self._resumed = False
        self._past_verdicts: list[Verdict] = []  # on ranks that others have replaced
        self._doubt_since: Optional[float] = None
        self.first_death: Optional[float] = None  # in the present attempt
        self.judge_at = 0.0  # when the deaths reported so far are judged
        self.failure: Optional[Failure] = None

    def resume(self) -> None:
        """Treat each node's next report as known, because an earlier hub has already seen the attempts."""
        self._resumed = True

    @property
    def behind(self) -> Set[int]:
        """Return the nodes that have not followed into the present attempt yet."""
        return self._behind

    def note_attempt(self, node: int, count: int) -> bool:
        """Note a heartbeat's count of attempts. Returns whether the node has new ranks since the last one."""
        known = self._counts.setdefault(node, count if self._resumed else 0)
        self._counts[node] = max(known, count)
        return count > known

    def begin(self, node: int) -> None:
        """Begin the next attempt with the new ranks of this node."""
        self._behind = set(self._record.members) - {node}
        self._past_verdicts, self._doubt_since = self._record.verdicts, None
        self.first_death, self.failure = None, None

    def follow(self, node: int) -> None:
        """Let the node's new ranks join the present attempt."""
        self._behind.discard(node)

    def note_death(self, now: float) -> None:
        """Note a death that has to be judged."""
        self.first_death = now if self.first_death is None else self.first_death

    def settles_at(self, now: float) -> float:
        """Return the earliest time at which the deaths may be judged."""
        return max(now, (now if self.first_death is None else self.first_death) + SETTLE)

    # ---------------------------------------------------------------- verdicts on it

    @property
    def has_past_verdicts(self) -> bool:
        """Whether the job's verdicts are still those of an earlier attempt, and so explain nothing now."""
        verdicts = self._record.verdicts
        return bool(verdicts) and verdicts is self._past_verdicts

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the job's verdicts, without those of an earlier attempt."""
        return [] if self.has_past_verdicts else self._record.verdicts

    def pick_surer(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return the verdicts; if they are doubtful, the earlier ones of this attempt."""
        before = self.verdicts if self.failure is None else self.failure.verdicts
        return before if before and is_doubtful(verdicts) else verdicts

    def put_off_judgement(self, verdicts: list[Verdict], evidence: JobEvidence, now: float) -> bool:
        """Judge again in DOUBT seconds, if the verdicts are doubtful and more may become known.

        Returns False when that has been put off for long enough, or when there is no doubt.
        """
        since = now if self._doubt_since is None else self._doubt_since
        patience = LEAVING if _is_some_rank_leaving(evidence) else DOUBT
        if not is_doubtful(verdicts) or now - since >= patience:
            self._doubt_since = None
            return False
        self._doubt_since, self.judge_at = since, now + DOUBT
        return True

    # ---------------------------------------------------------------- whether the others can go on

    def note_least_nodes(self, node: int, least: Optional[int]) -> None:
        """Note the fewest nodes with which this node's torchrun goes on; None: it does not decide that."""
        if least is not None:
            self._least[node] = least

    def is_over(self, codes: dict[int, int], gone: Set[int]) -> bool:
        """Whether a launch command has ended with a failure and the others cannot go on without it.

        torchrun's agents decide among themselves whether to go on, as long as enough of them are left.
        `codes`: exit codes of the nodes that have ended; `gone`: nodes that are lost.
        """
        out = {node for node, code in codes.items() if code != Exit.OK} | gone
        left = self._record.members - out
        if not out:
            return False
        return not left or not self._least or len(left) < min(self._least.values())

    def is_sending_away(self, evidence: JobEvidence) -> bool:
        """Whether torchrun's agents may have ended all dead ranks themselves, to go on with other nodes."""
        ends = [rank.exit for node in evidence.evidence for rank in node.ranks if rank.exit is not None]
        return bool(self._least) and all(end.by_us or end.signal == signal.SIGTERM for end in ends)


def is_doubtful(verdicts: list[Verdict]) -> bool:
    """Whether no verdict has a confidence of one half or more."""
    return not verdicts or max(verdict.confidence for verdict in verdicts) < 0.5


def announced_restart(evidence: JobEvidence) -> str:
    """Return "torchrun starts again (attempt 2 of 3)" if torchrun will restart its ranks; "" otherwise.

    A worker's environment says how often torchrun has restarted its workers, and how often it may.
    """
    counts = {
        (rank.restart, rank.max_restarts)
        for node in evidence.evidence
        for rank in node.ranks
        if not rank.alive and rank.restart is not None and rank.max_restarts is not None
    }
    restart, most = max(counts, default=(0, 0))
    return f"torchrun starts again (attempt {restart + 2} of {most + 1})" if restart < most else ""


def _is_some_rank_leaving(evidence: JobEvidence) -> bool:
    return any(
        rank.alive and rank.phase == Phase.FINALIZING for node in evidence.evidence for rank in node.ranks
    )
