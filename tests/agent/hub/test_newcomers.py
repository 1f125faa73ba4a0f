"""Nodes that come while the job runs: when the hub lets them in, and when it disturbs nobody for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.diagnosis.build import dead
from tests.agent.hub.growing import TIMEOUT, Job

from ddplaunch.agent.contract import REGROUP, CheckResult, Exit, NodeEvidence, Phase, Status, Verdict
from ddplaunch.agent.contract.messages import Evidence, Finished, RankEnded, Stopping, Unbound
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.hub import membership, recovery
from ddplaunch.agent.hub.closing import CHECKPOINT, FAREWELL
from ddplaunch.agent.hub.gate import GateState
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import COMPANY, NEWCOMER

FULL = CheckResult("disk", Status.FAIL, "/tmp is full", code="disk-full")
NAMELESS = CheckResult("names", Status.FAIL, "it has no name yet", code="dns-not-found", patience=30.0)


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.record.close()


def test_a_newcomer_waits_until_the_job_has_run_for_a_while(job: Job) -> None:
    """For as long as the gate waits for nodes; its own time at the gate begins again with each message."""
    job.passes(10)
    job.comes(2)
    job.passes(TIMEOUT - 11)
    assert [] == job.ended_by
    assert job.gates[2].got("waiting")[-1]["held"]
    assert ("gate", "newcomer") == (job.record.nodes[2].phase, job.record.nodes[2].standing)
    assert Phase.RUNNING == job.record.phase

    job.passes(2)
    assert [REGROUP] * 2 == job.ended_by
    assert CHECKPOINT == job.wires[0].got("end")[0]["grace"]
    job.ends_attempt()
    assert REGROUP == job.record.exit_code
    assert "the job stops, with time for a checkpoint, and goes on with node 2" in job.events


def test_newcomers_that_come_together_join_together(job: Job) -> None:
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY - 1)
    job.comes(3)
    job.passes(COMPANY - 1)
    assert [] == job.ended_by
    job.passes(2)

    assert [REGROUP] * 2 == job.ended_by
    assert "goes on with nodes 2 and 3" in job.events[-1]


@pytest.mark.parametrize("late", [(FULL,), (FULL, NAMELESS)])
def test_a_job_does_not_stop_for_a_newcomer_that_cannot_join(job: Job, late: tuple[CheckResult, ...]) -> None:
    job.passes(TIMEOUT)
    job.comes(2, *late)
    job.passes(90)

    assert "disk-full" in job.turned_away(2)
    assert ([], None) == (job.ended_by, job.record.exit_code)
    assert membership.LEFT_OUT == job.record.nodes[2].detail


def test_a_newcomer_is_judged_once_for_each_check_in(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rules on all nodes take a moment of the hub, which has ten ticks a second."""
    judged: list[list[int]] = []

    def judge(view: GateView, *_: object) -> list[Verdict]:
        judged.append(sorted(view.check_ins))
        return []

    monkeypatch.setattr(decide, "judge", judge)
    job.passes(1)
    job.comes(2)
    job.passes(5)
    assert [[0, 1, 2]] == judged

    job.comes(2)
    job.passes(5)
    assert [[0, 1, 2]] * 2 == judged


def test_a_fault_that_may_pass_is_given_its_time(job: Job) -> None:
    job.passes(TIMEOUT)
    job.comes(2, NAMELESS)
    job.passes(10)
    assert ([], []) == (job.turned_away(2), job.ended_by)
    job.comes(2)
    job.passes(COMPANY + 1)

    assert [REGROUP] * 2 == job.ended_by


def test_without_newcomers_in_the_job_file_a_late_node_is_turned_away(tmp_path: Path) -> None:
    job = Job(tmp_path, newcomers=False)
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY + 1)

    job.record.close()
    assert (["node-missing"], []) == (job.turned_away(2), job.ended_by)


def test_no_newcomer_is_let_in_while_something_is_amiss(job: Job) -> None:
    job.passes(TIMEOUT - 1)
    job.comes(2)
    asyncio.run(job.run.lost(job.wires[1]))  # type: ignore[arg-type]
    job.passes(90, but=1)

    assert [Exit.NODE_AT_FAULT] == [told["exit_code"] for told in job.wires[0].got("end")]
    assert ["node-missing"] == job.turned_away(2)


def test_a_node_that_is_being_stopped_is_not_disturbed(job: Job) -> None:
    job.passes(TIMEOUT - 1)
    job.comes(2)
    job.passes(1)
    job.says(1, Stopping("SIGTERM"))
    for node in (0, 1):
        (asked,) = job.wires[node].got("collect")
        job.says(node, Evidence(asked["id"], NodeEvidence(node, f"n{node}", time.time(), "running", [])))
    job.passes(COMPANY - 1)

    assert [] == job.ended_by


def test_a_newcomer_that_goes_away_changes_nothing(job: Job) -> None:
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(1)
    job.goes(2)
    job.passes(COMPANY + 1)

    assert ([], {0, 1}) == (job.ended_by, job.record.members)
    assert "node 2 does not join" in job.events


def regrouped(job: Job) -> None:
    """Node 2 has come, the attempt has ended, and the next hub serves."""
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY + 1)
    job.ends_attempt()
    job.again()


def test_the_next_attempt_waits_for_those_that_ran_and_for_newcomers(job: Job) -> None:
    regrouped(job)
    assert (1, {0, 1, 2}, {2}) == (job.record.attempt, job.record.members, job.record.newcomers)
    for node in (2, 0, 1):
        job.comes(node)
    job.reach(0, 1, 2)
    job.at_gate(0, Unbound())

    (release,) = job.gates[2].got("release")
    assert (3, 1) == (release["agreed"]["nodes"], release["agreed"]["regroups"])


def test_a_node_that_comes_while_the_others_go_back_to_the_gate_joins_with_them(job: Job) -> None:
    regrouped(job)
    job.comes(3)
    for node in (2, 0, 1):
        job.comes(node)

    assert GateState.MESHING == job.gate.state
    assert {0, 1, 2, 3} == job.record.members


@pytest.mark.parametrize("when", ["never back", "at the gate", "on its paths"])
def test_a_newcomer_that_dies_leaves_the_others_as_they_were(job: Job, when: str) -> None:
    regrouped(job)
    if when == "at the gate":
        job.comes(2)
        job.goes(2)
    for node in (0, 1) if when != "on its paths" else (0, 1, 2):
        job.comes(node)
    if when == "on its paths":
        job.goes(2)
    job.passes(NEWCOMER + 1)
    job.reach(0, 1)
    job.at_gate(0, Unbound())

    assert {0, 1} == job.record.members
    assert [2, 2] == [job.gates[node].got("release")[0]["agreed"]["nodes"] for node in (0, 1)]


def test_of_a_broken_path_the_newcomer_goes(job: Job) -> None:
    """Either end may be at fault, and the job ran with the other one: it must not end by too few nodes."""
    regrouped(job)
    for node in (0, 1, 2):
        job.comes(node)
    job.reach(0, 1, 2, failed=(2, 1))
    job.passes(1)

    assert {0, 1} == job.record.members
    assert GateState.UNBINDING == job.gate.state


def test_a_member_that_is_back_early_waits_for_the_others(job: Job) -> None:
    """The release of the attempt that ends is not for it."""
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY + 1)
    job.says(1, Finished(REGROUP))
    job.comes(1)
    job.passes(4)

    assert ([], None) == (job.gates[1].got("release"), job.record.exit_code)
    assert job.gates[1].got("waiting")[-1]["held"]
    job.passes(FAREWELL + CHECKPOINT)
    assert REGROUP == job.record.exit_code  # without node 0, which does not answer


def test_a_supervisor_of_an_earlier_attempt_is_sent_to_the_gate(job: Job) -> None:
    """It has missed the end, and must not count as a node of this attempt."""
    regrouped(job)
    for node in (2, 0, 1):
        job.comes(node)
    job.reach(0, 1, 2)
    job.at_gate(0, Unbound())
    job.joins(1, regroups=0)
    assert [REGROUP] == job.ended_by
    assert set() == job.run.sessions.nodes
    job.joins(0, regroups=1)

    assert [0] == [*job.run.sessions.nodes]


def test_after_a_restart_the_hub_knows_which_nodes_wait_to_be_let_in(job: Job) -> None:
    job.passes(TIMEOUT)
    job.comes(2)
    job.record.save()
    found = recovery.read_left(job.plan, str(job.folder), 0)
    assert found is not None
    later = JobRecord(job.plan, str(job.folder / "later"), 0)
    recovery.restore(later, found)
    later.close()

    assert ({0, 1}, 0) == (later.members, recovery.count_regroups(job.plan, str(job.folder), 0))


def test_a_hub_that_is_killed_between_two_attempts_begins_the_next(job: Job) -> None:
    """Its files say that the attempt has ended for newcomers."""
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY + 1)
    job.ends_attempt()

    assert 1 == recovery.count_regroups(job.plan, str(job.folder), 0)
    job.again()
    assert 1 == recovery.count_regroups(job.plan, str(job.folder), 0)
    assert recovery.read_left(job.plan, str(job.folder), 1) is None


def test_a_rank_that_fails_in_the_pause_ends_no_job(job: Job) -> None:
    """SIGTERM ends it as it likes; what is wrong with it shows in the next attempt."""
    job.passes(TIMEOUT)
    job.comes(2)
    job.passes(COMPANY + 1)
    job.says(0, RankEnded(dead(0, 1)))
    job.ends_attempt()

    assert (REGROUP, []) == (job.record.exit_code, job.record.verdicts)
