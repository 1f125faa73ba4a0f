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
from ddplaunch.agent.platforms.scheduler_log import SETTLE as TASK_SETTLE
from ddplaunch.agent.platforms.scheduler_log import Ended, StepTasks, UnreachedReport, report_line

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


def test_slurms_words_for_a_gate_that_never_was_are_the_verdicts(trial: Overhearing) -> None:
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


@pytest.mark.parametrize(("came", "code"), [([0], "node-missing"), ([], "launch-failed")])
def test_gates_that_never_were_are_at_fault_themselves_unless_none_ever_was(
    trial: Overhearing, came: list[int], code: str
) -> None:
    ended = [node for node in range(3) if node not in came]
    for node in came:
        trial.comes(node)
    trial.ended(*ended)

    (verdict,) = trial.told(5.0)
    assert (code, ended) == (verdict.code, verdict.nodes)


def test_a_gate_that_ends_after_it_has_come_is_said_to_have_been_there(trial: Overhearing) -> None:
    for node in range(3):
        trial.comes(node)
    trial.record.check_ins.pop(2)
    trial.view.note_left(2)
    trial.view.note_lost(2)
    trial.ended(2)

    (verdict,) = trial.told(5.0)
    assert ("node-missing", [2]) == (verdict.code, verdict.nodes)
    assert "came to the gate, and ended before it was through" in verdict.sentence


def test_the_verdict_of_a_gate_that_said_why_it_ends_stands(trial: Overhearing) -> None:
    trial.comes(0)
    trial.comes(1)
    own = Verdict.of("port-filtered", "node 2 (n3) -> the hub: in vain", "gate", nodes=[2])
    trial.write(f"2: {report_line(UnreachedReport(2, 5.0, own))}\n")
    assert [] == trial.told(5.0)
    trial.ended(2)

    assert [("port-filtered", [2])] == [(each.code, each.nodes) for each in trial.told(3.0)]


def test_a_gate_that_speaks_has_not_ended(trial: Overhearing) -> None:
    trial.comes(0)
    trial.comes(2)
    trial.ended(2)

    assert [] == trial.told(20.0)


# --- srun's messages

NAMES = ["n1", "n2", "n3"]


def heard(*lines: str) -> list[Ended]:
    """Of these lines, when they have settled."""
    tasks = StepTasks(NAMES)
    tasks.add([line.encode() for line in lines], 10.0)
    assert [] == tasks.ended(10.0 + TASK_SETTLE - 0.1)
    return tasks.ended(10.0 + TASK_SETTLE)


@pytest.mark.parametrize("label", ["", "1: "])
@pytest.mark.parametrize("begin", ["slurmstepd-n2:", "[2026-11-30T17:19:19.381]"])  # 24.11, 26.05
def test_the_words_of_a_prolog_that_fails_are_found(label: str, begin: str) -> None:
    """The node's daemon says why, before or after its task's end, with a label or without."""
    end = "srun: error: n2: task 1: Exited with exit code 1"
    why = f"{label}{begin} error: TaskProlog failed status=1"

    wanted = [Ended(1, "Exited with exit code 1", ["TaskProlog failed status=1"])]
    assert wanted == heard(end, why) == heard(why, end)


def test_what_each_of_several_nodes_said_is_known_by_its_label() -> None:
    found = heard(
        "1: tar: Unexpected EOF in archive",
        "0: gate passed",
        "2: error: cannot unpack",
        "srun: error: n[2-3]: tasks 1-2: Exited with exit code 79",
    )

    assert [
        Ended(1, "Exited with exit code 79", ["tar: Unexpected EOF in archive"]),
        Ended(2, "Exited with exit code 79", ["error: cannot unpack"]),
    ] == found


def test_words_without_a_label_are_nobodys_where_several_have_ended() -> None:
    words = "python3: can't open file '/tmp/ddplaunch-7/agent.pyz'"
    first = "srun: error: n1: task 0: Exited with exit code 2"

    assert [Ended(0, "Exited with exit code 2", [words])] == heard(words, first)
    assert [[], []] == [task.last_lines for task in heard(words, first, first.replace("task 0", "task 2"))]


def test_colours_are_no_words() -> None:
    """As singularity prints them: the one that ends a colour begins the next line."""
    end = "srun: error: n2: task 1: Exited with exit code 1"
    found = heard("1: \x1b[91mERROR  : not allowed", "1: \x1b[0merror: container: exit code 1", end)

    assert [["ERROR  : not allowed", "error: container: exit code 1"]] == [each.last_lines for each in found]


def test_tasks_beside_one_that_slurm_could_not_launch_are_victims() -> None:
    """It takes the whole step with it, whose other tasks are victims."""
    found = heard(
        "srun: error: Task launch for StepId=7.1 failed on node n2: Communication connection failure",
        "srun: error: Application launch failed: Communication connection failure",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "slurmstepd-n1: error: *** STEP 7.1 ON n1 CANCELLED AT 2026-11-21T22:16:02 ***",
        "srun: error: n3: task 2: Killed",
        "srun: error: n1: task 0: Killed",
    )

    assert [(1, "Task launch failed: Communication connection failure")] == [each[:2] for each in found]


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: n2: task 1: Exited with exit code 60",
        "srun: error: n9: task 9: Exited with exit code 1",
        "srun: error: Task launch for StepId=7.1 failed on node n9: Invalid node name specified",
        "1: srun: error: n2: task 1: Exited with exit code 1",
        "a rank prints: task 1: Exited with exit code 1",
    ],
)
def test_a_stop_another_job_and_a_ranks_own_words_are_no_end_of_a_gate(line: str) -> None:
    assert [] == heard(line)


def test_what_the_batch_script_notes_is_nobodys_word() -> None:
    first = "srun: error: n1: task 0: Exited with exit code 2"
    words = ["0: no Python", "0: ddplaunch-node 0: end", "ddplaunch-node 0: e30K"]

    assert [Ended(0, "Exited with exit code 2", ["no Python"])] == heard(*words, first)


CONTAINED = "ddplaunch-node container"
"""The batch script's word on a step whose tasks Slurm itself starts in containers."""


@pytest.mark.parametrize(
    ("lines", "how", "told"),
    [
        (
            ["1: executable file `sh` not found in $PATH: No such file or directory"],
            "1",
            "executable file `sh`",
        ),
        (["1: /bin/sh: 1: crun: not found"], "127", "/bin/sh: 1: crun: not found"),
        (
            ['1: time="2026-11-24T19:23:30Z" level=error msg="runc run failed: unable to set hostname"'],
            "1",
            '"runc run failed: unable',
        ),
        ([], "1", "Exited with exit code 1"),
    ],
)
def test_a_runtimes_last_words_are_why_no_container_starts(lines: list[str], how: str, told: str) -> None:
    """What was said last is the runtime's; the same words outside of a container mean nothing of the kind."""
    end = f"srun: error: n2: task 1: Exited with exit code {how}"
    ((*_, last),) = [each.last_lines for each in heard(CONTAINED, *lines, end)]

    assert last.startswith(f"error: container: {told}")
    assert "container" not in str(heard(*lines, end))


@pytest.mark.parametrize(
    ("line", "how", "said"),
    [
        ("1: ddplaunch-node 1: end", "Exited with exit code 1", []),
        (
            "slurmstepd-n2: error: TaskProlog failed status=1",
            "Exited with exit code 1",
            ["TaskProlog failed status=1"],
        ),
        ("1: no oci.conf", "Exited with exit code 79", ["no oci.conf"]),
        ("1: gate", "Out Of Memory", ["gate"]),
    ],
)
def test_a_task_that_has_spoken_is_no_fault_of_its_container(line: str, how: str, said: list[str]) -> None:
    """Its own words stand, once the task has got as far as these, and so do Slurm's."""
    (found,) = heard(CONTAINED, line, f"srun: error: n2: task 1: {how}")

    assert said == found.last_lines


def test_a_bundle_of_a_container_that_is_not_there_is_named() -> None:
    """Slurm then cannot launch the task at all."""
    line = "srun: error: Task launch for StepId=7.1 failed on node n2: No such file or directory"
    (found,) = heard(CONTAINED, line)

    assert ["error: container: Task launch failed: No such file or directory"] == found.last_lines
