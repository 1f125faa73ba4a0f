"""What a snapshot of a job says beyond Slurm's words, without Slurm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.snapshot import Snapshot
from ddplaunch.backends.slurm.submission import Submission


def of(workdir: Path, state: str = "COMPLETED", *, node_list: str = "n[1-2]", ran: float = 5.0) -> Snapshot:
    """Job 7, which began `ran` seconds ago."""
    began = time.time() - ran
    job = SlurmJob(7, state, name="toy", workdir=str(workdir), node_list=node_list, started=began)
    return Snapshot(7, "", job, Submission(name="toy", workdir=str(workdir), script="", at=began))


def test_a_folder_that_is_not_here_is_told_once_the_job_has_ended_or_run_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "toy-7"

    assert folder == of(tmp_path).unseen_folder
    assert folder == of(tmp_path, "RUNNING", ran=100).unseen_folder
    assert (tmp_path / "gone" / "toy-7") == of(tmp_path / "gone").unseen_folder


@pytest.mark.parametrize("here", ["toy-7", "toy-7.out"])
def test_a_folder_that_is_here_is_not_missed(tmp_path: Path, here: str) -> None:
    (tmp_path / here).mkdir()

    assert of(tmp_path).unseen_folder is None


def test_a_job_that_never_had_a_node_or_begins_has_no_folder_yet(tmp_path: Path) -> None:
    assert of(tmp_path, "CANCELLED", node_list="").unseen_folder is None
    assert of(tmp_path, "RUNNING", ran=1).unseen_folder is None
