"""Whether to look again at deaths that all point to a rank that was not seen. Pure."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import JobEvidence, Phase, Verdict

DOUBT = 2.0
"""Seconds until the second look."""
LEAVING = 20.0
"""Seconds of further looks while a living rank has come to its end: how it ended is what is missing."""


def is_doubtful(verdicts: list[Verdict]) -> bool:
    """Whether they name no cause that they are sure of."""
    return not verdicts or max(verdict.confidence for verdict in verdicts) < 0.5


class Recheck:
    """`now` is the monotonic clock."""

    def __init__(self) -> None:
        self._since: Optional[float] = None

    def lasts(self, verdicts: list[Verdict], evidence: JobEvidence, now: float) -> bool:
        """Whether these verdicts shall be found anew, DOUBT seconds from now."""
        since = now if self._since is None else self._since
        patience = LEAVING if _somebody_leaves(evidence) else DOUBT
        self._since = since if is_doubtful(verdicts) and now - since < patience else None
        return self._since is not None


def _somebody_leaves(evidence: JobEvidence) -> bool:
    return any(
        rank.alive and rank.phase == Phase.FINALIZING for node in evidence.evidence for rank in node.ranks
    )
