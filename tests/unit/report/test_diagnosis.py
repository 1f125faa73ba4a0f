"""Whose verdicts a diagnosis shows."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.backends.job import State
from ddplaunch.report import diagnose, known_verdicts


def test_the_jobs_own_verdicts_count() -> None:
    assert [given.VERDICT] == diagnose(given.job(), given.bundle()).verdicts


def test_where_the_hub_abstained_nothing_is_said() -> None:
    """Ranks that died of a signal look guilty to the rules; the hub knew that the job had been stopped."""
    bundle = given.bundle(verdicts=[], exit_code=Exit.STOPPED)
    assert bundle.evidence is not None
    assert [] != decide.judge(bundle.evidence)

    assert [] == diagnose(given.job(State.LOST), bundle).verdicts


def test_a_success_is_not_judged() -> None:
    """A healthy job has no verdicts, whatever its last evidence looks like."""
    assert [] == diagnose(given.job(State.SUCCEEDED), given.bundle(verdicts=[], exit_code=0)).verdicts


def test_without_a_bundle_the_status_speaks() -> None:
    """A notice that reached the status file is shown even when the bundle never came."""
    job = given.job(State.LOST, status=given.status(verdicts=[given.VERDICT]))

    assert [given.VERDICT] == diagnose(job, None).verdicts
    assert [] == diagnose(given.job(State.LOST), None).verdicts


def test_what_the_backend_knows_counts_where_the_job_could_not_speak() -> None:
    """A scheduler's word for an end is no match for the job's own."""
    evicted = Verdict.of("node-evicted", "Slurm ended the job at its time limit", "run")
    job = given.job(State.LOST, verdicts=(evicted,))
    spoken = dataclasses.replace(job, status=given.status(verdicts=[given.VERDICT]))

    assert [evicted] == diagnose(job, None).verdicts == known_verdicts(job)
    assert [evicted] == diagnose(job, given.bundle(verdicts=[], evidence=None, exit_code=None)).verdicts
    assert [given.VERDICT] == diagnose(spoken, None).verdicts == known_verdicts(spoken)
    assert [given.VERDICT] == diagnose(job, given.bundle()).verdicts
