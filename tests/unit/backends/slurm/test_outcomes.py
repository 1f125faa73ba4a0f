"""What Slurm's word for a job means, beside what its hub said."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Files, JobStatus, Phase, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line
from ddplaunch.backends.job import State
from ddplaunch.backends.slurm import outcomes, parse
from ddplaunch.backends.slurm.parse import SlurmJob

ME = 1000


def hub_status(exit_code: int | None) -> JobStatus:
    """By a hub whose job ended so."""
    return JobStatus("digits", 0, Phase.ENDED, 1.0, [], 1.0, 1.0, exit_code=exit_code)


job = functools.partial(SlurmJob, 7)


@pytest.mark.parametrize(
    ("seen", "hub", "cancelled", "state", "code", "detail"),
    [
        (job("COMPLETED", exit_code=0), None, False, State.SUCCEEDED, 0, ""),
        (job("COMPLETED", exit_code=0), 0, False, State.SUCCEEDED, 0, ""),
        (job("COMPLETING", exit_code=20), 20, False, State.FAILED, 20, ""),
        (job("COMPLETING", exit_code=60), 60, True, State.CANCELLED, 60, "by `ddplaunch cancel`"),
        (job("FAILED", exit_code=40), None, False, State.FAILED, 40, ""),
        (
            job("FAILED", exit_code=0, signal=9),
            None,
            False,
            State.LOST,
            None,
            "its batch script was killed by signal 9",
        ),
        (
            job("FAILED", exit_code=0, signal=1, reason="BadConstraints"),
            None,
            False,
            State.FAILED,
            None,
            "Slurm could not run it: BadConstraints",
        ),
        (
            job("FAILED", exit_code=60),
            60,
            False,
            State.LOST,
            60,
            "stopped from outside, not by `ddplaunch cancel`",
        ),
        (job("FAILED", exit_code=60), 60, True, State.CANCELLED, 60, "by `ddplaunch cancel`"),
        (job("CANCELLED"), 60, True, State.CANCELLED, 60, "by `ddplaunch cancel`"),
        (job("CANCELLED"), None, False, State.CANCELLED, None, "by scancel"),
        (job("CANCELLED", ended_by=ME), None, False, State.CANCELLED, None, f"by scancel (user {ME})"),
        (job("CANCELLED", ended_by=0), None, False, State.LOST, 60, "cancelled by scancel (user 0)"),
        (
            job("TIMEOUT", time_limit=5400.0),
            None,
            False,
            State.LOST,
            60,
            "Slurm ended it at its time limit of 01:30:00",
        ),
        (job("TIMEOUT"), 50, False, State.FAILED, 50, "Slurm ended it at its time limit"),
        (job("PREEMPTED"), None, False, State.LOST, 60, "Slurm preempted it for a job of higher priority"),
        (job("NODE_FAIL"), None, False, State.LOST, None, "one of its nodes failed"),
        (job("NODE_FAIL"), 40, False, State.FAILED, 40, "one of its nodes failed"),
        (job("BOOT_FAIL"), None, False, State.LOST, None, "one of its nodes did not boot"),
        (job("DEADLINE"), None, False, State.LOST, 60, "Slurm ended it at its deadline"),
        (job("OUT_OF_MEMORY"), None, False, State.FAILED, 41, "it used more memory than it was given"),
    ],
)
def test_the_hubs_exit_code_tells_more_than_slurms_state(
    seen: SlurmJob, hub: int | None, cancelled: bool, state: State, code: int | None, detail: str
) -> None:
    """The hub's exit code tells more than Slurm's state; an end that Slurm caused is reported as such."""
    status = hub_status(hub) if hub is not None else None

    assert (state, code, detail) == outcomes.outcome(seen, status, cancelled=cancelled, me=ME)[:3]


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


LOST = SlurmJob(
    7, "FAILED", exit_code=0, signal=53, node_list="n[1-2]", workdir="/data/here", started=100.0, ended=100.0
)


def test_a_folder_that_is_not_there_is_named_with_its_node() -> None:
    """Slurm prints 0:53, the rest of 4021."""
    found = outcomes.explained(LOST, "/data/it's/toy-7.out")

    assert found is not None
    assert found.verdict.sentence.startswith("the folder /data/it's is not on n1, or is not writable")
    assert r"srun --nodelist=n1 --chdir=/ ls -ld '/data/it'\''s'" in found.verdict.hint
    assert ("launch-failed", "launch", [0], 30) == (
        found.verdict.code,
        found.verdict.where,
        found.verdict.nodes,
        found.outcome.exit_code,
    )
    assert found.verdict.facts == [
        "the exit code 0:53 stands for Slurm's own error 4021, ESLURMD_IO_ERROR",
        "the output would have been /data/it's/toy-7.out",
    ]


@pytest.mark.parametrize(("status", "number"), [(4010, 4010), (4021, 4021), (4022, 4022), (4033, 4033)])
def test_all_forms_of_the_status_are_read(status: int, number: int) -> None:
    """Slurm 22.05 lists the number itself, later versions what a wait status has of it."""
    _, signal = parse.wait_status(status)

    assert number == outcomes.number(dataclasses.replace(LOST, signal=signal))
    assert outcomes.explained(dataclasses.replace(LOST, signal=signal), "") is not None


@pytest.mark.parametrize(
    "job",
    [
        dataclasses.replace(LOST, signal=9),
        dataclasses.replace(LOST, signal=15),
        dataclasses.replace(LOST, ended=400.0),  # `kill -53`, in a job that ran
        dataclasses.replace(LOST, state="CANCELLED"),
        dataclasses.replace(LOST, signal=None, exit_code=53),
    ],
)
def test_a_signal_is_a_signal(job: SlurmJob) -> None:
    """One that may have been sent is not explained away."""
    assert outcomes.explained(job, "") is None


def test_a_list_of_nodes_that_cannot_be_read_names_none() -> None:
    """The folder is known all the same, from where the job was submitted."""
    found = outcomes.explained(dataclasses.replace(LOST, node_list="n[1"), "")

    assert found is not None
    assert found.verdict.sentence.startswith("the folder /data/here")
    assert [] == found.verdict.nodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[slurm] 10:00:00 error: n1 has no Python\n", "n1 has no Python"),
        ("slurmstepd-n1: error: TaskProlog failed status=3\n", "TaskProlog failed status=3"),
        ("[2026-11-30T17:19:19.381] error: TaskProlog failed status=3\n", "TaskProlog failed status=3"),
        ("[slurm] 10:00:00 error: first\nsrun: error: x\n[slurm] 10:00:00 error: last\n", "last"),
        ("[slurm] 10:00:00 each node's own words\nerror: of a rank\n", ""),
    ],
)
def test_a_script_that_gave_up_is_explained_by_its_last_word(tmp_path: Path, text: str, said: str) -> None:
    output = tmp_path / "job-7.out"
    output.write_text(text)

    assert said == outcomes.of_script(output)
    assert "" == outcomes.of_script(None)


def test_each_cause_that_gates_have_said_is_told_once(tmp_path: Path) -> None:
    """Of each node the last word; each cause once, with all whom it names."""

    def cry(node: int, code: str, culprit: int) -> str:
        verdict = Verdict.of(code, f"node {node}: {code}", "gate", nodes=[culprit])
        return f"{node}: {report_line(UnreachedReport(node, 3.0, verdict))}\n"

    assert [] == outcomes.of_gates(None) == outcomes.of_gates(tmp_path)
    (tmp_path / Files.RUN).mkdir()
    said = [
        cry(1, "dns-not-found", 1),
        cry(1, "port-refused", 0),
        cry(2, "port-filtered", 2),
        cry(3, "port-filtered", 3),
    ]
    (tmp_path / Files.GATES).write_text("".join(["0: gate of job\n", *said, "\n"]))

    assert [
        ("port-refused", [0], "node 1: port-refused"),
        ("port-filtered", [2, 3], "node 2: port-filtered (and 1 more)"),
    ] == [(each.code, each.nodes, each.sentence) for each in outcomes.of_gates(tmp_path)]
