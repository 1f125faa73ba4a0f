"""Jobs that need only some of their nodes: whom the gate goes on without, and when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.hub import growing
from tests.agent.hub.gates import Client

from ddplaunch.agent.contract import CheckResult, Exit, GatePlan, JobPlan, Status
from ddplaunch.agent.contract.messages import Unbound
from ddplaunch.agent.hub.gate import GateSession, GateState
from ddplaunch.agent.hub.job_record import JobRecord

FULL = CheckResult("disk", Status.FAIL, "/tmp is full", code="disk-full")


class Job(growing.Job):
    """Three nodes, of which two suffice, and a clock."""

    def __init__(self, folder: Path, least: int | None = 2) -> None:
        gate = GatePlan(timeout=120.0)
        self.plan = JobPlan("job", 3, 1, [], ["train.py"], min_nodes=least, gate=gate)
        self.folder = folder
        self.record = JobRecord(self.plan, str(folder), 0)
        self.now = 1000.0
        self.gate = GateSession(self.plan, self.record, clock=lambda: self.now)
        self.gates = [Client() for _ in range(3)]

    def after(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            asyncio.run(self.gate.tick(self.now))


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.record.close()


def test_the_job_starts_with_those_who_came_by_the_deadline(job: Job) -> None:
    job.comes(0)
    job.comes(2)
    job.after(119)
    assert GateState.CHECKING_IN == job.gate.state
    job.after(3)
    tasks = {node: job.gates[node].got("mesh")[0]["tasks"] for node in (0, 2)}
    assert {0: {0, 2}, 2: {0}} == {node: {each["peer"] for each in told} for node, told in tasks.items()}
    job.reach(0, 2)
    job.at_gate(0, Unbound())

    assert ["release"] * 2 == [job.gates[node].sent[-1][0] for node in (0, 2)]
    assert 2 == job.gates[0].got("release")[0]["agreed"]["nodes"]
    assert [
        "node-missing: node 1 never came: waited 121 s; nodes 0 and 2 are here",
        "the job goes on without node 1",
    ] == [event.text for event in job.record.bundle().events if event.kind == "notice"]
    assert "gate passed in 122.0 s with nodes 0 and 2, starting" == job.events[-1]


def test_a_node_that_fails_its_checks_is_left_out_with_its_verdict(job: Job) -> None:
    job.comes(0)
    job.comes(1, FULL)
    job.comes(2)
    job.reach(0, 1, 2)
    job.after(1)

    ((code, told),) = [(each["exit_code"], each["verdicts"]) for each in job.gates[1].got("verdict")]
    assert (Exit.NODE_AT_FAULT, ["disk-full"]) == (code, [each["code"] for each in told])
    job.at_gate(0, Unbound())
    assert {0, 2} == job.record.members
    assert ["release"] * 2 == [job.gates[node].sent[-1][0] for node in (0, 2)]


def test_a_node_that_the_others_do_not_reach_is_left_out(job: Job) -> None:
    """Of a broken path both ends are suspects; node 0 is never left out."""
    for node in range(3):
        job.comes(node)
    job.reach(0, 1, 2, failed=(2, 0))
    job.after(1)

    assert {0, 1} == job.record.members
    assert [] == [each for each in job.record.mesh if 2 in (each.node, each.peer)]
    assert GateState.UNBINDING == job.gate.state


def test_a_node_that_goes_away_just_before_the_release_does_not_count(job: Job) -> None:
    """torchrun would wait for it."""
    for node in range(3):
        job.comes(node)
    job.reach(0, 1, 2)
    job.after(1)
    asyncio.run(job.gate.lost(job.gates[1]))  # type: ignore[arg-type]
    job.at_gate(0, Unbound())

    assert [2, 2] == [job.gates[node].got("release")[0]["agreed"]["nodes"] for node in (0, 2)]


def test_with_too_few_nodes_left_the_job_ends_by_the_verdict(job: Job) -> None:
    job.comes(0)
    job.comes(1, FULL)
    job.after(122)

    assert GateState.JUDGED == job.gate.state
    assert {"disk-full", "node-missing"} >= {verdict.code for verdict in job.record.verdicts} > set()


@pytest.mark.parametrize("late", [0, 2])
def test_a_job_of_a_fixed_size_and_an_elastic_one_without_node_zero_wait(tmp_path: Path, late: int) -> None:
    job = Job(tmp_path, least=None if late else 2)
    for node in {0, 1, 2} - {late}:
        job.comes(node)
    job.after(122)

    job.record.close()
    assert (GateState.JUDGED, [[late]]) == (job.gate.state, [v.nodes for v in job.record.verdicts])


def test_a_node_that_comes_when_the_others_have_gone_on_is_turned_away(job: Job) -> None:
    job.comes(0)
    job.comes(2)
    job.after(122)
    job.comes(1)

    (answer,) = job.gates[1].got("verdict")
    assert ["node 1 came when the job had gone on without it"] == [v["sentence"] for v in answer["verdicts"]]
    assert GateState.MESHING == job.gate.state
