"""When to judge deaths again: those that all point to a rank without evidence. Pure."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import JobEvidence, Phase, Verdict

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
