"""What Slurm says of a job's end, the comment that it shows, and its lists of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import JobPlan, Occasion, Verdict
from ddplaunch.agent.hub import notify
from ddplaunch.agent.platforms.slurm import ended_by, expand_nodes, notice_comment


@pytest.mark.parametrize(
    ("shown", "who"),
    [
        ("JobState=COMPLETING Reason=None PreemptTime=None", "scancel"),
        ("JobState=CANCELLED Reason=None", "scancel"),
        ("JobState=COMPLETING Reason=TimeLimit", "Slurm, at its time limit"),
        ("JobState=TIMEOUT Reason=TimeLimit", "Slurm, at its time limit"),
        ("JobState=PREEMPTED Reason=None", "Slurm, for a job of higher priority"),
        ("JobState=RUNNING Reason=None PreemptTime=None", ""),
        ("slurm_load_jobs error: Invalid job id specified", ""),
    ],
)
def test_the_state_of_a_job_says_who_ends_it_unless_it_runs(
    shown: str, who: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "scontrol").write_text(f"#!/bin/sh\necho 'JobId=7 JobName=a {shown}'\n")
    (folder / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    assert who == ended_by()


PLAN = JobPlan("digits", 2, 4, [], ["train.py"], platform="slurm")
HANG = Verdict.of("rank-missing", "rank 3 is not in all_reduce", "run", nodes=[0], ranks=[3])


def made(occasion: str, *verdicts: Verdict) -> dict[str, Any]:
    """Return the message."""
    return notify.compose(occasion, PLAN, 0, "slurm://7", verdicts, None, 86400.5)


def test_a_comment_says_the_notice_until_it_does_not_hold_any_more() -> None:
    assert "ddplaunch: notice: rank-missing: rank 3 is not in all_reduce" == notice_comment(
        made(Occasion.NOTICE, HANG)
    )
    assert "ddplaunch: the notice is withdrawn" == notice_comment(made(Occasion.WITHDRAWN))


def test_a_comment_is_cut_and_escaped() -> None:
    long = notice_comment(made(Occasion.NOTICE, Verdict.of("rank-failed", "é\x1b[2J" + "é" * 900, "run")))

    assert 200 == len(long)
    assert long.startswith("ddplaunch: notice: rank-failed: é\\x1b[2J")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,gpu7", ["n1", "gpu7"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3],m", ["n08", "n09", "n10", "n3", "m"]),
        ("r[1-2]n[a,b]", ["r1na", "r1nb", "r2na", "r2nb"]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
    ],
)
def test_a_list_of_nodes_is_expanded_in_its_order(text: str, names: list[str]) -> None:
    assert names == expand_nodes(text)


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[3-1]", "n[a-b]", "n[0-999999999]", "n1,,n2"])
def test_a_damaged_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_nodes(text)
