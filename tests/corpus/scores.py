"""How a verdict on a program of the corpus compares with what is true of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.corpus.cases import Case

WIDER = {
    "rank-in-user-code": (
        "rank-in-dataloader",
        "rank-late-to-init",
        "exception-swallowed",
        "device-shared",
        "async-not-waited",
        "gil-held",
        "io-stuck",
        "lock-deadlock",
        "cpu-starved",
    ),
    "rank-in-dataloader": ("io-stuck", "lock-deadlock", "rank-killed-memory", "rank-killed-bus"),
    "rank-late-to-init": ("io-stuck", "lock-deadlock", "gil-held", "cpu-starved"),
    "rank-killed": ("rank-killed-memory", "rank-killed-bus"),
    "collective-mismatch": ("collective-skipped", "group-partial", "exception-swallowed"),
    "collective-skipped": ("exception-swallowed",),
    "rank-exited-early": ("collective-skipped",),
    "slow": ("slow-broadcast", "cpu-starved"),
}
"""Codes that are true of another's rank as well, and only say less of why."""
DOUBT = 0.5
"""A verdict that names no rank, and is no surer than this, says that it does not know."""
RIGHT, WIDE, PART, ABSTAINED, WRONG = "right", "wider cause", "some of the ranks", "abstained", "wrong"
KINDS = (RIGHT, WIDE, PART, ABSTAINED, WRONG)


@dataclass(frozen=True)
class Score:
    """One run of a fault's program against what is true of it."""

    case: Case
    run: dict[str, Any]

    @property
    def kind(self) -> str:
        """One of KINDS."""
        code, ranks = self.run["code"], self.run["ranks"]
        if code == self.case.code and set(ranks) == set(self.case.ranks):
            return RIGHT
        doubts = self.case.ranks and not ranks and self.run.get("confidence", 1.0) <= DOUBT
        if code in ("none", "unknown") or doubts:
            return ABSTAINED
        if not set(ranks) <= set(self.case.ranks) or (self.case.ranks and not ranks):
            return WRONG
        if code != self.case.code and self.case.code not in WIDER.get(code, ()):
            return WRONG
        return WIDE if set(ranks) == set(self.case.ranks) else PART

    @property
    def rank_is_right(self) -> bool:
        """Whether all ranks at fault are named, and no other."""
        return set(self.run["ranks"]) == set(self.case.ranks) and self.kind != ABSTAINED


def of_ranks(true: set[int], told: set[int]) -> str:
    """Return how the ranks that were told compare with the true ones."""
    if not told:
        return ABSTAINED
    if told == true:
        return RIGHT
    return PART if told < true else WRONG


def named(code: str, ranks: Iterable[int]) -> str:
    """'rank-failed [2, 3]'."""
    numbers = ", ".join(str(rank) for rank in ranks)
    return f"{code} [{numbers}]" if numbers else code
