"""Nodes that pass the gate and do not come to train: when it is told, when it ends the job."""

from __future__ import annotations

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
    RendezvousSettings,
    codec,
)
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.run_session import RunSession
from ddplaunch.agent.hub.stall_detector import LAUNCH
from ddplaunch.agent.hub.supervisor_join import GIVEN_UP, LATE, NONE_CAME, SupervisorJoin
from ddplaunch.agent.platforms.scheduler_log import SETTLE

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
            self.supervisor_join.joined(node, NAMES[node], self.now)

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


def test_nobody_joins_while_the_gate_is_at_work(trial: Trial) -> None:
    """Nodes have checked in and none has passed: who joins is no supervisor of a node that was released."""
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


def test_who_does_not_come_is_told_of_and_then_given_up(trial: Trial) -> None:
    """Both are counted from the last one that came."""
    trial.come(0)
    trial.now += 8.0
    trial.come(2)

    assert [] == trial.after(LATE - 0.5)
    assert [("node-missing", [1], False)] == trial.after(0.5)
    assert [1] == trial.record.waiting_for
    assert [] == trial.after(GIVEN_UP - LATE - 0.5)
    assert [("node-missing", [1], True)] == trial.after(0.5)


def test_whoever_comes_late_after_all(trial: Trial) -> None:
    """What was said of it is taken back."""
    trial.come(0, 2)
    trial.after(LATE)
    trial.come(1)

    assert ([], []) == (trial.after(2 * GIVEN_UP), trial.record.waiting_for)


def test_nobody_comes_as_long_as_the_scheduler_starts_nobody(trial: Trial) -> None:
    """A controller may be away, and srun asks again only after two minutes; in the end no node is accused."""
    assert [] == trial.after(NONE_CAME - 0.5)
    assert [("launch-failed", [], True)] == trial.after(1.0)


def test_ranks_that_run_have_met_the_others(trial: Trial) -> None:
    """Then it is only the line to the hub that is missing."""
    trial.come(0, 2)
    trial.record.node(0, phase=Phase.INIT)

    assert [("node-missing", [1], False)] == trial.after(2 * GIVEN_UP)


def test_before_the_release_nobody_is_awaited(trial: Trial) -> None:
    """Nor by a hub that was started again in the middle of a run."""
    trial.record.enter(Phase.GATE)
    assert [] == trial.after(2 * GIVEN_UP)
    trial.record.agreed = None
    trial.come(0)
    assert [] == trial.after(2 * GIVEN_UP)


def test_a_task_of_which_slurm_tells_the_end(trial: Trial) -> None:
    """Nobody waits for it any more, but for its last words; who has come is not meant."""
    trial.come(0, 2)
    trial.srun(SAYS.replace("task 1", "task 2"))
    trial.srun(SAYS[:20])
    assert [] == trial.after(3 * SETTLE)
    trial.srun(SAYS[20:])
    assert [] == trial.after(0.5)
    assert [("node-missing", [1], True)] == trial.after(SETTLE)[:1]


def test_all_tasks_have_ended(trial: Trial) -> None:
    """No node is at fault then, so that none is left out for it."""
    trial.srun("srun: error: n[1-3]: tasks 0-2: Exited with exit code 127\n")

    assert ("launch-failed", [0, 1, 2], True) == trial.after(2 * SETTLE)[0]


def test_a_node_that_the_job_does_not_have(trial: Trial) -> None:
    """Whoever claims its place is dropped."""
    with pytest.raises(codec.ContractError, match="node 3 joins a job of 3 nodes"):
        trial.supervisor_join.joined(3, "n4", trial.now)


def test_the_others_hear_of_it_and_are_ended(hub: Hub) -> None:
    """First as a notice, then as the reason of the end, which may be another node's turn."""
    hub.handler = RunSession(hub.plan, hub.record, clock=lambda: hub.now)
    hub.wires = [Wire(), Wire()]
    hub.says(0, "join", {"node": 0, "host": "n0", "pid": 1})
    hub.ticks(LATE + 0.5)
    ((notice,), []) = hub.wires[0].got("notice"), hub.wires[0].got("end")
    assert ["node-missing"] == [verdict["code"] for verdict in notice["verdicts"]]
    hub.ticks(GIVEN_UP - LATE)

    (end,) = hub.wires[0].got("end")
    assert (Exit.NODE_AT_FAULT, [1]) == (end["exit_code"], end["verdicts"][0]["nodes"])
    hub.says(0, "finished", {"node": 0, "exit_code": end["exit_code"]})
    hub.ticks(0.2)
    assert Exit.NODE_AT_FAULT == hub.record.exit_code


def test_a_node_that_never_came_is_the_verdict_at_kill_after(hub: Hub) -> None:
    """The ranks that did come wait for it, and of them alone nothing can be known."""
    hub.handler = RunSession(hub.plan, hub.record, clock=lambda: hub.now)
    hub.wires = [Wire(), Wire()]
    hub.says(0, "join", {"node": 0, "host": "n0", "pid": 1})
    stuck: dict[str, Any] = {"phase": Phase.INIT, "stuck_for": 61.0, "still_for": 61.0}
    beat = codec.dump(Beat(0, Phase.INIT, NOW, [replace(each, **stuck) for each in HUNG[:2]]))
    for _ in range(int(LAUNCH) + 1):
        hub.says(0, "beat", {"beat": beat})
        hub.ticks(1.0)
    hub.answers(0, *(rank(n, in_init(), groups=[], initialized=False, **stuck) for n in range(2)))

    (end,) = hub.wires[0].got("end")
    (verdict,) = end["verdicts"]
    assert (Exit.NODE_AT_FAULT, "node-missing", [1]) == (end["exit_code"], verdict["code"], verdict["nodes"])


def test_the_notice_is_taken_back(hub: Hub) -> None:
    """The last node has come: nothing is wrong any more."""
    hub.handler = RunSession(hub.plan, hub.record, clock=lambda: hub.now)
    hub.says(0, "join", {"node": 0, "host": "n0", "pid": 1})
    hub.ticks(LATE + 0.5)
    assert ["node-missing"] == [verdict.code for verdict in hub.record.verdicts]
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [] == hub.record.verdicts
    assert "all nodes have started their ranks after all" == hub.events[-1]
