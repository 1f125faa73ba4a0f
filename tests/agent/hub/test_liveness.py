"""Which nodes are there after the gate: silent ones, gone ones, and those that never join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.diagnosis.build import NOW, in_init, rank
from tests.agent.hub.sessions import HUNG, Hub, Wire

from ddplaunch.agent.contract import (
    Beat,
    CheckIn,
    Exit,
    Files,
    GatePlan,
    JobPlan,
    Phase,
    RankBeat,
    RendezvousSettings,
    codec,
)
from ddplaunch.agent.hub.attempts import DOUBT, SETTLE
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.liveness import CLOSED, GIVEN_UP, LATE, NONE_CAME, QUIET, UNCONFIRMED, SupervisorJoin
from ddplaunch.agent.hub.run import RunSession
from ddplaunch.agent.hub.stalls import LAUNCH
from ddplaunch.agent.platforms.scheduler_log import SETTLE as TASKS_SETTLE


def test_a_lost_node_ends_the_job_as_a_nodes_fault(hub: Hub) -> None:
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.ticks(CLOSED - 1)
    assert [] == hub.wires[0].got("end")
    hub.ticks(1.5)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(SETTLE + DOUBT + 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(1)

    (end,) = hub.wires[0].got("end")
    assert (Exit.NODE_AT_FAULT, [1]) == (end["exit_code"], end["verdicts"][0]["nodes"])


def test_a_node_that_comes_back_is_not_lost(hub: Hub) -> None:
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.ticks(CLOSED - 1)
    hub.wires[1] = Wire()
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})
    hub.ticks(CLOSED)

    assert [] == hub.wires[0].got("collect")


def test_a_node_whose_kernel_is_silent_is_reported_early_and_given_up_late(hub: Hub) -> None:
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1) for each in HUNG))
    hub.wires[1].silent_for = 8.0
    hub.ticks(QUIET + UNCONFIRMED + 0.2)
    hub.answers(0, rank(0), rank(1))

    ((verdict,),) = [notice["verdicts"] for notice in hub.wires[0].got("notice")]
    assert ("network-lost", [1], [0, 1]) == (verdict["code"], verdict["nodes"], verdict["victims"])
    assert ["ping"] == [kind for kind, _ in hub.wires[1].sent if kind not in ("notice", "alive")]
    hub.ticks(45)
    assert [] == hub.wires[0].got("end")
    hub.ticks(60)
    assert [Exit.NODE_AT_FAULT] == [end["exit_code"] for end in hub.wires[0].got("end")]
    hub.finish(Exit.NODE_AT_FAULT)
    assert Exit.NODE_AT_FAULT == hub.record.exit_code  # nobody waits for the other's farewell


def test_a_supervisor_that_is_starved_is_not_lost(hub: Hub) -> None:
    """Its kernel confirms what is sent to it, about once a second, for as long as it says nothing."""
    hub.ticks(100)

    assert 90 < len(hub.wires[1].got("ping")) < 101
    assert [] == hub.wires[0].got("notice") + hub.wires[0].got("end")


def test_a_frozen_node_is_reported_early_and_given_up_at_kill_after(hub: Hub) -> None:
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(0.1)

    ((verdict,),) = [notice["verdicts"] for notice in hub.wires[0].got("notice")]
    assert ("network-lost", [1], [0, 1]) == (verdict["code"], verdict["nodes"], verdict["victims"])
    assert "has said nothing since" in verdict["sentence"]
    assert "its processes are frozen or starved" in verdict["sentence"]
    wait(hub, 60, since=12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(SETTLE + 0.1)
    assert [Exit.NODE_AT_FAULT] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_a_stuck_supervisor_is_not_lost_while_the_others_train(hub: Hub) -> None:
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1) for each in HUNG))
    for _ in range(60):
        beats(hub, 0.5)
        hub.ticks(1)

    assert [] == hub.wires[0].got("notice") + hub.wires[0].got("end")


def test_the_notice_of_a_frozen_node_that_goes_on_is_withdrawn(hub: Hub) -> None:
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(0.1)
    assert ["network-lost"] == [verdict.code for verdict in hub.record.verdicts]
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))

    assert [] == hub.record.verdicts
    assert "node 1 answers again" in hub.events


def test_a_hub_that_was_frozen_itself_blames_nobody(hub: Hub) -> None:
    """All of a machine was suspended: what nobody said meanwhile is no silence."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 7)
    hub.now += 100
    beats(hub, 107)
    hub.ticks(0.3)

    hub.beats(*(replace(each, stuck_for=107, still_for=107, waits=True) for each in HUNG))
    hub.ticks(5)
    assert [] == hub.wires[0].got("collect") + hub.wires[0].got("notice")
    assert not any("says nothing" in text for text in hub.events)


def wait(hub: Hub, seconds: int, since: int = 0) -> None:
    """Node 0 says each second that its ranks wait; node 1 says nothing."""
    for second in range(since, since + seconds):
        beats(hub, second)
        hub.ticks(1)


def beats(hub: Hub, stuck: float) -> None:
    """Node 0's ranks have waited for so long."""
    ranks = [RankBeat(n, n, 1000 + n, True, "running", stuck, stuck, True, completed=16) for n in (0, 1)]
    hub.says(0, "beat", {"beat": codec.dump(Beat(0, "running", NOW, ranks))})


def test_a_lost_pod_is_named_with_its_machine(tmp_path: Path) -> None:
    """To all nodes alike, and in the record; names alone are not what fails."""
    hub = Hub(tmp_path, names=[f"d-{node}.d.lab.svc.cluster.local" for node in range(2)])
    hub.says(1, "join", {"node": 1, "host": "d-1 on worker2", "pid": 1})
    hub.wires[1].silent_for = 8.0
    hub.ticks(20)
    hub.record.close()

    ((told,),) = [each["verdicts"] for each in hub.wires[0].got("notice")]
    assert told["sentence"].startswith("node 1 (d-1 on worker2)")
    assert [told["sentence"]] == [verdict.sentence for verdict in hub.record.verdicts]


def test_the_notice_of_a_node_that_answers_again_is_withdrawn(hub: Hub) -> None:
    hub.wires[1].silent_for = 8.0
    hub.ticks(20)
    assert ["network-lost"] == [verdict.code for verdict in hub.record.verdicts]
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.wires[1] = Wire()
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [] == hub.record.verdicts
    assert "node 1 answers again" in hub.events


NAMES = ["n1", "n2", "n3"]
SAYS = "srun: error: n2: task 1: Exited with exit code 1\n"


class Trial:
    """Three nodes that were released just now."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        plan = JobPlan("trial", 3, 2, ["{python}"], ["train.py"], gate=GatePlan(timeout=120.0), names=NAMES)
        self.record = JobRecord(plan, str(folder), 0)
        self.record.agreed = RendezvousSettings("10.0.0.1", 29500)
        self.record.enter(Phase.RENDEZVOUS)
        self.supervisor_join = SupervisorJoin(self.record)

    def come(self, *nodes: int) -> None:
        for node in nodes:
            self.supervisor_join.note_joined(node, NAMES[node], self.now)

    def after(self, seconds: float) -> list[tuple[str, list[int], bool]]:
        """Code, nodes and certainty of all that is said in this time."""
        end, said = self.now + seconds, []
        while self.now < end - 1e-6:
            self.now = min(end, self.now + 0.5)
            fault = self.supervisor_join.look(self.now)
            if fault is not None:
                (verdict,) = fault.verdicts
                said.append((verdict.code, verdict.nodes, fault.certain))
        return said

    def srun(self, text: str) -> None:
        with Path(self.record.path(Files.STEP)).open("a") as file:
            file.write(text)


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path)
    yield trial
    trial.record.close()


def test_no_supervisor_may_join_before_the_release(trial: Trial) -> None:
    agreed, trial.record.agreed = trial.record.agreed, None
    trial.record.check_ins[0] = CheckIn(0, "n1", 3, 2, "10.0.0.1", {}, 0.0)
    with pytest.raises(codec.ContractError, match="node 1 joins before the release"):
        trial.come(1)

    trial.record.agreed = agreed
    trial.come(1)


def test_a_hub_that_has_seen_no_gate_lets_supervisors_in(trial: Trial) -> None:
    """It was started again in mid-training, and does not know what the gate agreed on."""
    trial.record.agreed = None

    trial.come(0, 1, 2)


def test_a_supervisor_that_does_not_join_is_reported_and_later_given_up(trial: Trial) -> None:
    trial.come(0)
    trial.now += 8.0
    trial.come(2)

    assert [] == trial.after(LATE - 0.5)
    assert [("node-missing", [1], False)] == trial.after(0.5)
    assert [1] == trial.record.waiting_for
    assert [] == trial.after(GIVEN_UP - LATE - 0.5)
    assert [("node-missing", [1], True)] == trial.after(0.5)


def test_a_scheduler_that_starts_no_supervisor_gets_more_time_and_no_node_is_accused(trial: Trial) -> None:
    assert [] == trial.after(NONE_CAME - 0.5)
    assert [("launch-failed", [], True)] == trial.after(1.0)


def test_where_ranks_run_only_the_connection_to_the_hub_is_missing(trial: Trial) -> None:
    trial.come(0, 2)
    trial.record.update_node(0, phase=Phase.INIT)

    assert [("node-missing", [1], False)] == trial.after(2 * GIVEN_UP)


def test_no_supervisor_is_awaited_before_the_release(trial: Trial) -> None:
    trial.record.enter(Phase.GATE)
    assert [] == trial.after(2 * GIVEN_UP)
    trial.record.agreed = None
    trial.come(0)
    assert [] == trial.after(2 * GIVEN_UP)


def test_a_node_whose_task_slurm_has_ended_is_not_waited_for(trial: Trial) -> None:
    trial.come(0, 2)
    trial.srun(SAYS.replace("task 1", "task 2"))
    trial.srun(SAYS[:20])
    assert [] == trial.after(3 * TASKS_SETTLE)
    trial.srun(SAYS[20:])
    assert [] == trial.after(0.5)
    assert [("node-missing", [1], True)] == trial.after(TASKS_SETTLE)[:1]


def test_when_all_tasks_have_ended_no_node_is_at_fault(trial: Trial) -> None:
    trial.srun("srun: error: n[1-3]: tasks 0-2: Exited with exit code 127\n")

    assert ("launch-failed", [0, 1, 2], True) == trial.after(2 * TASKS_SETTLE)[0]


@pytest.fixture(name="lonely")
def _lonely(hub: Hub) -> Hub:
    """Node 0 has joined alone."""
    hub.handler = RunSession(hub.plan, hub.record, clock=lambda: hub.now)
    hub.wires = [Wire(), Wire()]
    hub.says(0, "join", {"node": 0, "host": "n0", "pid": 1})
    return hub


def test_a_missing_supervisor_is_first_a_notice_and_then_ends_the_job(lonely: Hub) -> None:
    hub = lonely
    hub.ticks(LATE + 0.5)
    ((notice,), []) = hub.wires[0].got("notice"), hub.wires[0].got("end")
    assert ["node-missing"] == [verdict["code"] for verdict in notice["verdicts"]]
    hub.ticks(GIVEN_UP - LATE)

    (end,) = hub.wires[0].got("end")
    assert (Exit.NODE_AT_FAULT, [1]) == (end["exit_code"], end["verdicts"][0]["nodes"])
    hub.says(0, "finished", {"node": 0, "exit_code": end["exit_code"]})
    hub.ticks(0.2)
    assert Exit.NODE_AT_FAULT == hub.record.exit_code


def test_a_node_that_never_came_is_the_verdict_at_kill_after(lonely: Hub) -> None:
    """The ranks that did come wait for it, and of them alone nothing can be known."""
    hub = lonely
    stuck: dict[str, Any] = {"phase": Phase.INIT, "stuck_for": 61.0, "still_for": 61.0}
    beat = codec.dump(Beat(0, Phase.INIT, NOW, [replace(each, **stuck) for each in HUNG[:2]]))
    for _ in range(int(LAUNCH) + 1):
        hub.says(0, "beat", {"beat": beat})
        hub.ticks(1.0)
    hub.answers(0, *(rank(n, in_init(), groups=[], initialized=False, **stuck) for n in range(2)))

    (end,) = hub.wires[0].got("end")
    (verdict,) = end["verdicts"]
    assert (Exit.NODE_AT_FAULT, "node-missing", [1]) == (end["exit_code"], verdict["code"], verdict["nodes"])


def test_the_notice_of_a_missing_supervisor_is_withdrawn_when_it_joins(lonely: Hub) -> None:
    hub = lonely
    hub.ticks(LATE + 0.5)
    assert ["node-missing"] == [verdict.code for verdict in hub.record.verdicts]
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [] == hub.record.verdicts
    assert "no node is missing any more; all are starting their ranks" == hub.events[-1]
