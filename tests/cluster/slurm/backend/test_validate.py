"""`validate --to slurm`: the controller is asked, and gets no job."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.backend.conftest import Login

from ddplaunch.cli.main import main

JOB = "apiVersion: ddplaunch/v1\nname: tiny\nnodes: 2\ncommand: [train.py]\n"


@pytest.fixture(name="job")
def _job(login: Login) -> Path:
    """A job file in the folder where we stand."""
    Path("train.py").touch()
    Path("job.yaml").write_text(JOB)
    return Path("job.yaml")


def test_the_controller_says_when_a_job_could_start(
    login: Login, job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And has no job then."""
    assert 0 == main(["validate", "job.yaml", "--to", "slurm"])

    assert "job.yaml: good for slurm; to start at 20" in capfd.readouterr().err
    login.cluster.login(["squeue", "--noheader"])
    assert "" == login.cluster.login(["squeue", "--noheader"]).stdout


def test_what_the_controller_would_refuse_is_refused(
    login: Login, job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As by `submit`, as far as `sbatch --test-only` knows the reason."""
    for more, words in (
        ("slurm: {partition: nosuch}\n", "there is no partition nosuch"),
        ("slurm: {constraint: nosuch}\n", "no node has the features of `slurm.constraint`"),
        ("resources: {memory: 900Ti}\n", "there are not enough nodes that have everything the job requests"),
    ):
        job.write_text(JOB + more)
        assert 106 == main(["validate", "job.yaml", "--to", "slurm"])

        answer = capfd.readouterr().err
        assert answer.startswith("job.yaml: the file is good for slurm, but:\nerror: ")
        assert words in answer
        assert (106, "") == (main(["submit", "job.yaml", "--to", "slurm"]), capfd.readouterr().out)


def test_an_error_of_the_file_comes_first(login: Login, job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The controller is not asked about a job that cannot be sent."""
    job.write_text(JOB + "slurm: {extra: [--array=0-3]}\n")

    assert 2 == main(["validate", "job.yaml", "--to", "slurm"])
    assert 0 == login.count("sbatch")
