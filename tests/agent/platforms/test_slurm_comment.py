"""The comment that Slurm shows of a job. A real Slurm has tests of its own."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import JobPlan, Occasion, Verdict
from ddplaunch.agent.hub import message
from ddplaunch.agent.platforms.slurm import notice_comment

PLAN = JobPlan("digits", 2, 4, [], ["train.py"], platform="slurm")
HANG = Verdict("rank-missing", "rank 3 is not in all_reduce", "run", nodes=[0], ranks=[3])


def made(occasion: str, *verdicts: Verdict) -> dict[str, Any]:
    """Return the message."""
    return message.of(occasion, PLAN, 0, "slurm://7", verdicts, None, 86400.5)


def test_a_comment_says_what_holds_now() -> None:
    """The notice, or that it does not hold any more."""
    assert "ddplaunch: notice: rank-missing: rank 3 is not in all_reduce" == notice_comment(
        made(Occasion.NOTICE, HANG)
    )
    assert "ddplaunch: the notice is withdrawn" == notice_comment(made(Occasion.WITHDRAWN))


def test_a_long_sentence_is_cut_and_a_strange_one_escaped() -> None:
    """squeue prints a comment as it is."""
    long = notice_comment(made(Occasion.NOTICE, Verdict("rank-failed", "é\x1b[2J" + "é" * 900, "run")))

    assert 200 == len(long)
    assert long.startswith("ddplaunch: notice: rank-failed: é\\x1b[2J")
