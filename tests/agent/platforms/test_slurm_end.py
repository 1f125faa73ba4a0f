"""Who ends a job of Slurm, by what its controller says; tests/cluster/slurm/test_life.py asks a real one."""

from __future__ import annotations

import pytest

from ddplaunch.agent.platforms.slurm import ended_by


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
def test_the_state_of_a_job_says_who_ends_it(
    shown: str, who: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal of `scancel --signal` ends a running one: nobody is named then."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "scontrol").write_text(f"#!/bin/sh\necho 'JobId=7 JobName=a {shown}'\n")
    (folder / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    assert who == ended_by()
