"""Attempts within the launch commands: which one runs, what failed in it, and when to judge that again.

torchrun starts its ranks again, a script starts another torchrun, a program calls mp.spawn once more. Each
node reports by its heartbeats that it has new ranks. The first node that does so for the second time begins
the next attempt of the job; until another follows, its ended ranks are of the attempt before.

Asked by `run` alone. Pure: time is an argument.
"""

from __future__ import annotations

import signal
from collections.abc import Set
from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Exit, JobEvidence, Phase, Verdict

SETTLE = 1.0
"""Seconds after the first death for reports from other nodes, so that the first cause is known."""
LAST = 3.0
"""Seconds that a launch command has to end over a failure, before there is a notice: with its end comes the
verdict, and a notice of the same would repeat it."""


@dataclass
class Failure:
    """The verdicts on deaths of the present attempt, while the launch command goes on."""

    verdicts: list[Verdict]
    evidence: JobEvidence
    due: float  # when to give notice of it
    by_agents: bool = False  # torchrun's agents may have sent these ranks away, to go on with other nodes
    noticed: bool = False


class LaunchAttempts:
    """`now` is the monotonic clock. `members`: the job's nodes; the caller's own set, which changes."""

    def __init__(self, members: Set[int]) -> None:
        self._members = members
        self._counts: dict[int, int] = {}  # attempts that each node has reported
        self._behind: set[int] = set()
        self._least: dict[int, int] = {}
        self._resumed = False
        self.first_death: Optional[float] = None  # in the present attempt
        self.failure: Optional[Failure] = None

    def resume(self) -> None:
        """Take the first report of each node as known: an earlier hub has seen the attempts before."""
        self._resumed = True

    @property
    def behind(self) -> Set[int]:
        """Return the nodes that have not followed into the present attempt yet."""
        return self._behind

    def has_new_ranks(self, node: int, count: int) -> bool:
        """Note a heartbeat's count of attempts. Returns whether the node has started other ranks since."""
        known = self._counts.setdefault(node, count if self._resumed else 0)
        self._counts[node] = max(known, count)
        return count > known

    def begin(self, node: int) -> None:
        """Begin the next attempt with the new ranks of this node."""
        self._behind = set(self._members) - {node}
        self.first_death, self.failure = None, None

    def follow(self, node: int) -> None:
        """Let the node's new ranks join the present attempt."""
        self._behind.discard(node)

    def died(self, now: float) -> None:
        """Note a death that is to be judged."""
        self.first_death = now if self.first_death is None else self.first_death

    def settled(self, now: float) -> float:
        """Return from when on the deaths may be judged."""
        return max(now, (now if self.first_death is None else self.first_death) + SETTLE)

    # ------------------------------------------------- whether the others can go on

    def needs(self, node: int, least: Optional[int]) -> None:
        """Note with how few nodes this node's torchrun goes on, where its agents decide that."""
        if least is not None:
            self._least[node] = least

    def is_over(self, codes: dict[int, int], gone: Set[int]) -> bool:
        """Whether a launch command has ended with a failure, and the others cannot go on without it.

        torchrun's agents decide among themselves whether they go on, as long as enough of them are left.
        `codes`: of the nodes that have ended; `gone`: nodes that are lost.
        """
        out = {node for node, code in codes.items() if code != Exit.OK} | gone
        left = self._members - out
        if not out:
            return False
        return not left or not self._least or len(left) < min(self._least.values())

    def are_sent_away(self, evidence: JobEvidence) -> bool:
        """Whether torchrun's agents may have ended all ranks that are dead: they go on with other nodes."""
        ends = [rank.exit for node in evidence.evidence for rank in node.ranks if rank.exit is not None]
        return bool(self._least) and all(end.by_us or end.signal == signal.SIGTERM for end in ends)


def follows(evidence: JobEvidence) -> str:
    """Return what torchrun says that it does about a death: "torchrun starts again (attempt 2 of 3)", or "".

    The environment of a worker has how often torchrun has started its workers again, and how often it may.
    """
    counts = {
        (rank.restart, rank.max_restarts)
        for node in evidence.evidence
        for rank in node.ranks
        if not rank.alive and rank.restart is not None and rank.max_restarts is not None
    }
    restart, most = max(counts, default=(0, 0))
    return f"torchrun starts again (attempt {restart + 2} of {most + 1})" if restart < most else ""


DOUBT = 2.0
"""Seconds until the next judgement."""
LEAVING = 20.0
"""Seconds for which to judge again while a living rank is finalizing: its exit status is still missing."""


def is_doubtful(verdicts: list[Verdict]) -> bool:
    """Whether no verdict has a confidence of a half or more."""
    return not verdicts or max(verdict.confidence for verdict in verdicts) < 0.5


class Recheck:
    """`now` is the monotonic clock."""

    def __init__(self) -> None:
        self._since: Optional[float] = None
        self._past: list[Verdict] = []

    def begin_round(self, past: list[Verdict]) -> None:
        """Note the verdicts on workers that others replace: they explain nothing of what comes."""
        self._since, self._past = None, past

    def is_past(self, verdicts: list[Verdict]) -> bool:
        """Whether these are the verdicts on workers that others have replaced."""
        return bool(verdicts) and verdicts is self._past

    def surer(self, verdicts: list[Verdict], before: list[Verdict]) -> list[Verdict]:
        """Return the verdicts, or where these are doubtful those `before`, if they are of the same round."""
        return before if before and not self.is_past(before) and is_doubtful(verdicts) else verdicts

    def lasts(self, verdicts: list[Verdict], evidence: JobEvidence, now: float) -> bool:
        """Whether to judge again, DOUBT seconds from now."""
        since = now if self._since is None else self._since
        patience = LEAVING if _somebody_leaves(evidence) else DOUBT
        self._since = since if is_doubtful(verdicts) and now - since < patience else None
        return self._since is not None


def _somebody_leaves(evidence: JobEvidence) -> bool:
    return any(
        rank.alive and rank.phase == Phase.FINALIZING for node in evidence.evidence for rank in node.ranks
    )
