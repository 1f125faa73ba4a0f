"""What is made of the files of a hub that was killed."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest
from tests.agent.diagnosis.build import dead, rank, victim
from tests.agent.hub.sessions import Hub, Wire, beat

from ddplaunch.agent.contract import Exit, Exited, JobPlan, NodeEvidence, Phase, RankEvidence, WatchdogPlan
from ddplaunch.agent.hub import liveness, recovery
from ddplaunch.agent.hub.gate import LINGER, GateSession
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.liveness import GONE
from ddplaunch.agent.hub.run import RunSession
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.without_hub import WithoutHub

ALL = [beat(number, 1) for number in range(4)]


def killed(hub: Hub, *back: int) -> None:
    """Put another hub in its place, to which the nodes `back` come."""
    hub.record.save()
    found = recovery.read_left(hub.plan, str(Path(hub.record.path("run")).parent), 0)
    assert found is not None
    hub.record.close()
    hub.record = JobRecord(hub.plan, str(Path(hub.record.path("run")).parent), 0)
    recovery.restore(hub.record, found)
    hub.handler = RunSession(hub.plan, hub.record, clock=lambda: hub.now)
    hub.wires = [Wire() for _ in hub.wires]
    hub.handler.resume()
    for node in back:
        joins(hub, node)


def joins(hub: Hub, node: int) -> None:
    """A supervisor finds the hub."""
    hub.says(node, "join", {"node": node, "host": f"n{node}", "pid": 1})


def test_a_node_that_had_finished_is_not_waited_for(hub: Hub) -> None:
    hub.beats(*ALL)
    hub.says(1, "finished", {"node": 1, "exit_code": 0})
    killed(hub, 0)
    hub.says(0, "finished", {"node": 0, "exit_code": 0})
    hub.ticks(0.2)

    assert (Exit.OK, []) == (hub.record.exit_code, hub.record.verdicts)
    assert hub.record.agreed is not None
    assert "all ranks have finished" in hub.events


def test_a_node_may_go_once_the_files_say_that_it_has_finished(hub: Hub) -> None:
    hub.beats(*ALL)
    hub.says(1, "finished", {"node": 1, "exit_code": 0})
    assert [] == hub.wires[1].got("noted")
    hub.record.flush()
    hub.ticks(0.1)

    assert [{}] == hub.wires[1].got("noted")


def test_nothing_is_judged_until_all_nodes_are_back(hub: Hub) -> None:
    hub.beats(*ALL)
    killed(hub, 0)
    hub.death(0, victim(0))
    hub.ticks(10)
    assert [] == hub.record.verdicts
    joins(hub, 1)
    hub.death(1, dead(2, 0.5, signal=9))
    hub.fails(1)
    hub.ticks(10)

    assert [("rank-killed", [2])] == [(each.code, each.ranks) for each in hub.record.verdicts]


def test_a_rejoining_node_that_repeats_deaths_and_its_end_counts_once(hub: Hub) -> None:
    hub.beats(*ALL)
    for _ in range(2):
        hub.death(1, dead(2, 0.5, signal=9))
        hub.says(1, "finished", {"node": 1, "exit_code": 40})
        joins(hub, 1)

    assert 1 == sum("rank 2 has ended" in event for event in hub.events)
    assert Phase.ENDED == hub.record.nodes[1].phase


def test_a_node_that_does_not_come_back_is_lost(hub: Hub) -> None:
    """Its machine may have been lost with the hub; it has as long as any node that is silent."""
    hub.beats(*ALL)
    killed(hub, 0)
    for _ in range(int(liveness.RECONNECT + GONE) - 1):
        hub.says(0, "beat", {"beat": {"node": 0, "phase": "running", "at": 1.0, "ranks": []}})
        hub.ticks(1)
    assert [None] == [hub.handler.closing.exit_code]
    hub.ticks(20)

    assert Exit.NODE_AT_FAULT == hub.handler.closing.exit_code
    assert [("network-lost", [1])] == [(each.code, each.nodes) for each in hub.record.verdicts]


def test_an_end_that_was_decided_stands(hub: Hub) -> None:
    hub.beats(*ALL)
    hub.death(1, dead(2, 0.5, signal=9))
    hub.fails(1)
    hub.ticks(10)
    assert Exit.WORKER_FAILED == hub.handler.closing.exit_code
    killed(hub, 0, 1)

    assert [Exit.WORKER_FAILED] == [body["exit_code"] for body in hub.wires[0].got("end")]
    hub.finish(40, 40)
    assert Exit.WORKER_FAILED == hub.record.exit_code
    assert ["rank-killed"] == [each.code for each in hub.record.verdicts]


def test_files_of_another_attempt_or_job_or_of_a_gate_that_was_not_passed_are_not_taken_up(hub: Hub) -> None:
    hub.beats(*ALL)
    hub.record.save()
    folder = str(Path(hub.record.path("run")).parent)

    assert recovery.read_left(hub.plan, folder, 0) is not None
    assert recovery.read_left(hub.plan, folder, 1) is None
    assert recovery.read_left(dataclasses.replace(hub.plan, job="other"), folder, 0) is None
    hub.record.enter(Phase.GATE)
    hub.record.save()
    assert recovery.read_left(hub.plan, folder, 0) is None


def test_a_verdict_of_the_gate_stands(tmp_path: Path) -> None:
    """Gates that have not heard it have a moment to come for it."""
    plan = JobPlan("digits", nodes=2, nproc_per_node=2, launch=[], command=[])
    record = JobRecord(plan, str(tmp_path), 0)
    record.enter(Phase.GATE)
    record.decide(Exit.MISCONFIGURED)
    record.save()
    record.close()
    found = recovery.read_left(plan, str(tmp_path), 0)
    assert found is not None
    again, now = JobRecord(plan, str(tmp_path), 0), [0.0]
    recovery.restore(again, found)
    handler = GateSession(plan, again, clock=lambda: now[0])
    handler.resume()
    asyncio.run(handler.tick(LINGER - 0.1))
    assert [None] == [again.exit_code]
    asyncio.run(handler.tick(LINGER + 0.1))

    assert Exit.MISCONFIGURED == again.exit_code
    again.close()


PLAN = JobPlan("digits", 2, 1, launch=[], command=[], watchdog=WatchdogPlan(10.0, 60.0))


def write(folder: Path, node: int, ranks: list[RankEvidence], ended: Exited | None) -> None:
    """Judge one node's ranks, and keep them as its supervisor does; `ended`: its launch command."""
    place = LaunchContext(str(folder), node)
    Path(place.node).mkdir(parents=True)
    alone = WithoutHub(PLAN, place, node, 0)
    found = NodeEvidence(node, f"n{node}", time.time(), "running", ranks, launch_exit=ended)
    if ended is None:
        assert alone.judge_hang(found) is not None
    else:
        alone.judge_end(Exit.WORKER_FAILED, found)


@pytest.mark.parametrize(("seconds", "accused"), [(5.0, []), (-5.0, [0])], ids=["after", "before"])
def test_a_failure_after_anothers_hang_is_no_fault(
    tmp_path: Path, seconds: float, accused: list[int]
) -> None:
    """Its peer was ended as hung, so its own connection broke. One that failed before is to blame."""
    at = time.time() + seconds
    gone = dataclasses.replace(rank(0), alive=False, exit=Exited(at, 1))
    write(tmp_path, 0, [gone], Exited(at, 1))
    write(tmp_path, 1, [rank(1, stuck_for=70.0, still_for=70.0)], None)

    found = recovery.gather_bundle(PLAN, str(tmp_path))

    assert found is not None
    assert accused == sorted({each for one in found.verdicts for each in one.ranks})
