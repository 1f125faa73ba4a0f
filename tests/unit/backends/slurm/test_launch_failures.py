"""A batch script that Slurm never started: its error number is told apart from a signal, and explained."""

from __future__ import annotations

import dataclasses

import pytest

from ddplaunch.backends.slurm import outcomes, parse
from ddplaunch.backends.slurm.parse import SlurmJob

LOST = SlurmJob(
    7, "FAILED", exit_code=0, signal=53, node_list="n[1-2]", workdir="/data/here", started=100.0, ended=100.0
)


def test_a_folder_that_is_not_there_is_named_with_its_node() -> None:
    """Slurm prints 0:53, the rest of 4021."""
    found = outcomes.explained(LOST, "/data/it's/toy-7.out")

    assert found is not None
    assert found.verdict.sentence.startswith("the folder /data/it's is not on n1, or nothing can be written")
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
