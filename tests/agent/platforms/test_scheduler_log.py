"""Gates that end before they are heard of, as srun tells of them. Time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.hub.members import Trial

from ddplaunch.agent.contract import Files, Verdict
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import SETTLE, Membership
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line

WHY = "2: slurmstepd-n3: error: TaskProlog failed status=1\n"


class Overhearing(Trial):
    """Nodes with names, whose output comes to the hub."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.record.close()
        self.plan = replace(self.plan, names=["n1", "n2", "n3"])
        self.record = JobRecord(self.plan, str(folder), 0)
        self.view = Membership(self.plan, self.record, lambda: self.now)

    def ended(self, *nodes: int) -> None:
        lines = [f"srun: error: n{node + 1}: task {node}: Exited with exit code 1\n" for node in nodes]
        self.write("".join(lines))

    def write(self, text: str) -> None:
        with (self.folder / Files.GATES).open("a") as file:
            file.write(text)

    def told(self, seconds: float) -> list[Verdict]:
        """What ends the job, if anything does by then."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.view.read_scheduler_log()
            verdicts = self.view.look(self.now).verdicts
            if verdicts:
                return verdicts
        return []


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Iterator[Overhearing]:
    trial = Overhearing(tmp_path)
    yield trial
    trial.record.close()


def test_a_gate_that_never_was(trial: Overhearing) -> None:
    """Slurm's words for it are the verdict's, after a moment for others to come."""
    trial.comes(0)
    trial.comes(1)
    trial.ended(2)
    trial.write(WHY)

    assert [] == trial.told(SETTLE)
    (verdict,) = trial.told(2.0)
    assert ("node-missing", [2]) == (verdict.code, verdict.nodes)
    assert verdict.sentence == (
        "node 2 (n3) never came to the gate: TaskProlog failed status=1 (srun: Exited with exit code 1)"
    )


def test_several_gates_that_never_were(trial: Overhearing) -> None:
    """Each is at fault itself, and not node 0 whom they would have called."""
    trial.comes(0)
    trial.ended(1, 2)

    (verdict,) = trial.told(5.0)
    assert ("node-missing", [1, 2]) == (verdict.code, verdict.nodes)


def test_all_gates_that_never_were(trial: Overhearing) -> None:
    """Then it is no node's fault."""
    trial.ended(0, 1, 2)

    (verdict,) = trial.told(5.0)
    assert ("launch-failed", [0, 1, 2]) == (verdict.code, verdict.nodes)


def test_a_gate_that_ends_after_it_has_come(trial: Overhearing) -> None:
    """It was lost first, and is said to have been here."""
    for node in range(3):
        trial.comes(node)
    trial.record.check_ins.pop(2)
    trial.view.left(2)
    trial.view.lost(2)
    trial.ended(2)

    (verdict,) = trial.told(5.0)
    assert ("node-missing", [2]) == (verdict.code, verdict.nodes)
    assert "came to the gate, and ended before it was through" in verdict.sentence


def test_a_gate_that_has_said_itself_why_it_ends(trial: Overhearing) -> None:
    """Its own verdict stands, and nobody waits longer for it."""
    trial.comes(0)
    trial.comes(1)
    own = Verdict("port-filtered", "node 2 (n3) -> the hub: in vain", "gate", nodes=[2])
    trial.write(f"2: {report_line(UnreachedReport(2, 5.0, own))}\n")
    assert [] == trial.told(5.0)
    trial.ended(2)

    assert [("port-filtered", [2])] == [(each.code, each.nodes) for each in trial.told(3.0)]


def test_a_gate_that_is_here_has_not_ended(trial: Overhearing) -> None:
    """Whatever is told of tasks: one who speaks is here."""
    trial.comes(0)
    trial.comes(2)
    trial.ended(2)

    assert [] == trial.told(20.0)
