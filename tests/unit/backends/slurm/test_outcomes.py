"""What Slurm's word for a job means, beside what its hub said."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import JobStatus, Phase
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.backends.job import State
from ddplaunch.backends.slurm import outcomes
from ddplaunch.backends.slurm.parse import SlurmJob

ME = 1000


def hub_status(exit_code: int | None) -> JobStatus:
    """By a hub whose job ended so."""
    return JobStatus("digits", 0, Phase.ENDED, 1.0, [], 1.0, 1.0, exit_code=exit_code)


@pytest.mark.parametrize(
    ("seen", "hub", "cancelled", "outcome"),
    [
        (SlurmJob(7, "COMPLETED", exit_code=0), None, False, (State.SUCCEEDED, 0, "")),
        (SlurmJob(7, "COMPLETED", exit_code=0), 0, False, (State.SUCCEEDED, 0, "")),
        (SlurmJob(7, "COMPLETING", exit_code=0), 0, False, (State.SUCCEEDED, 0, "")),
        (SlurmJob(7, "COMPLETING", exit_code=20), 20, False, (State.FAILED, 20, "")),
        (SlurmJob(7, "COMPLETING", exit_code=60), 60, True, (State.CANCELLED, 60, "by `ddplaunch cancel`")),
        (SlurmJob(7, "FAILED", exit_code=20), 20, False, (State.FAILED, 20, "")),
        (SlurmJob(7, "FAILED", exit_code=40), None, False, (State.FAILED, 40, "")),
        (
            SlurmJob(7, "FAILED", exit_code=0, signal=9),
            None,
            False,
            (State.LOST, None, "its batch script was killed by signal 9"),
        ),
        (
            SlurmJob(7, "FAILED", exit_code=0, signal=1, reason="BadConstraints"),
            None,
            False,
            (State.FAILED, None, "Slurm could not run it: BadConstraints"),
        ),
        (
            SlurmJob(7, "FAILED", exit_code=60),
            60,
            False,
            (State.LOST, 60, "stopped from outside, not by `ddplaunch cancel`"),
        ),
        (SlurmJob(7, "FAILED", exit_code=60), 60, True, (State.CANCELLED, 60, "by `ddplaunch cancel`")),
        (SlurmJob(7, "CANCELLED"), 60, True, (State.CANCELLED, 60, "by `ddplaunch cancel`")),
        (SlurmJob(7, "CANCELLED"), None, False, (State.CANCELLED, None, "by scancel")),
        (
            SlurmJob(7, "CANCELLED", ended_by=ME),
            None,
            False,
            (State.CANCELLED, None, f"by scancel (user {ME})"),
        ),
        (
            SlurmJob(7, "CANCELLED", ended_by=0),
            None,
            False,
            (State.LOST, 60, "cancelled by scancel (user 0)"),
        ),
        (
            SlurmJob(7, "TIMEOUT", time_limit=5400.0),
            None,
            False,
            (State.LOST, 60, "Slurm ended it at its time limit of 01:30:00"),
        ),
        (SlurmJob(7, "TIMEOUT"), 50, False, (State.FAILED, 50, "Slurm ended it at its time limit")),
        (SlurmJob(7, "TIMEOUT"), 60, False, (State.LOST, 60, "Slurm ended it at its time limit")),
        (
            SlurmJob(7, "PREEMPTED"),
            None,
            False,
            (State.LOST, 60, "Slurm preempted it for a job of higher priority"),
        ),
        (SlurmJob(7, "NODE_FAIL"), None, False, (State.LOST, None, "a node of it failed")),
        (SlurmJob(7, "NODE_FAIL"), 40, False, (State.FAILED, 40, "a node of it failed")),
        (SlurmJob(7, "BOOT_FAIL"), None, False, (State.LOST, None, "a node of it did not boot")),
        (SlurmJob(7, "DEADLINE"), None, False, (State.LOST, 60, "Slurm ended it at its deadline")),
        (
            SlurmJob(7, "OUT_OF_MEMORY"),
            None,
            False,
            (State.FAILED, 41, "it used more memory than it was given"),
        ),
    ],
)
def test_how_a_job_ended(
    seen: SlurmJob, hub: int | None, cancelled: bool, outcome: tuple[State, int | None, str]
) -> None:
    """The hub's exit code tells more than Slurm's state; an end that Slurm caused is reported as such."""
    status = hub_status(hub) if hub is not None else None

    assert outcome == outcomes.outcome(seen, status, cancelled=cancelled, me=ME)[:3]


@pytest.mark.parametrize(
    ("hub", "cancelled", "outcome"),
    [
        (0, False, (State.SUCCEEDED, 0)),
        (20, False, (State.FAILED, 20)),
        (60, True, (State.CANCELLED, 60)),
        (60, False, (State.LOST, 60)),
        (None, True, (State.CANCELLED, None)),
        (None, False, (State.LOST, None)),
    ],
)
def test_a_forgotten_job_is_what_it_left(
    hub: int | None, cancelled: bool, outcome: tuple[State, int | None]
) -> None:
    """Its hub's last word, and whether we have asked for its end."""
    assert outcome == outcomes.forgotten(hub_status(hub), cancelled=cancelled)[:2]


@pytest.mark.parametrize("state", sorted(outcomes.ENDED))
def test_ends_by_slurms_hand_have_a_verdict(state: str) -> None:
    """Of a code that the catalogue knows; other ends are the job's own to explain."""
    found = outcomes.verdicts(SlurmJob(7, state, node_list="n[1-2]", time_limit=600.0), [1], "node 1 (n2)")

    assert [each.code for each in found if each.code in CATALOGUE] == [each.code for each in found]
    assert bool(found) == (state not in ("COMPLETED", "FAILED", "CANCELLED", "REVOKED"))


def test_the_nodes_that_failed_are_the_culprits() -> None:
    """By number and name; a job that never had its nodes failed at its launch."""
    [verdict] = outcomes.verdicts(SlurmJob(7, "NODE_FAIL", node_list="n[1-2]"), [1], "node 1 (n2)")
    [boot] = outcomes.verdicts(SlurmJob(7, "BOOT_FAIL"))

    assert ([1], "node 1 (n2) of the job failed: Slurm lost contact with it") == (
        verdict.nodes,
        verdict.sentence,
    )
    assert ("run", "launch") == (verdict.where, boot.where)
    assert ["Slurm's state of the job is NODE_FAIL"] == verdict.facts
