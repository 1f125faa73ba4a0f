"""What starts the ranks of a job with launch: mpi, srun or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddplaunch.plan import plan
from ddplaunch.spec.models import JobSpec, Resources
from ddplaunch.spec.problems import SpecError
from ddplaunch.spec.targets import Container, Slurm

HERE = Path(__file__).parent


def launch(target: str, *command: str, **more: object) -> list[str]:
    """The launch words of a job of 3 nodes with 2 ranks each."""
    values = {"launch": "mpi", "nodes": 3, "nproc_per_node": 2, "command": command or ("train.py",), **more}
    made = JobSpec(apiVersion="ddplaunch/v1", name="job", **values)  # type: ignore[arg-type]
    job = plan.make(made, target, HERE).job
    assert job.keepers
    assert job.mpi == (made.launch == "mpi")
    return job.launch


@pytest.mark.parametrize("target", ["local", "slurm"])
def test_mpirun_is_told_the_number_of_ranks(target: str) -> None:
    """By default mpirun starts them, on Slurm as here; further settings differ between MPIs."""
    assert ["mpirun", "-n", "6", "{keeper}", "{python}"] == launch(target)


def test_a_program_is_started_as_it_is() -> None:
    """What is no Python script gets no Python before it."""
    assert ["mpirun", "-n", "6", "{keeper}"] == launch("local", "./solver", "in.dat")
    assert ["mpirun", "-n", "6", "{keeper}"] == launch("local", "python3", "train.py")


def test_a_module_is_started_by_the_jobs_python() -> None:
    """`-m trainer` means the same as with torchrun."""
    assert "{python}" == launch("local", "-m", "trainer")[-1]


def test_srun_starts_them_where_slurm_has_the_pmi() -> None:
    """The ranks of a node share the cores that the job asks for, in the order of the nodes."""
    assert [
        "srun",
        "--mpi=pmix",
        "--nodes=3",
        "--ntasks=6",
        "--ntasks-per-node=2",
        "--cpus-per-task=3",
        "--distribution=block",
        "--kill-on-bad-exit=1",
        "{keeper}",
        "{python}",
    ] == launch("slurm", slurm=Slurm(mpi="pmix"), resources=Resources(cpus=7.5))


def test_srun_is_of_slurm_alone() -> None:
    """`slurm.mpi` says nothing about a run on this machine."""
    assert "mpirun" == launch("local", slurm=Slurm(mpi="pmix"))[0]


@pytest.mark.parametrize("by", ["mpi", "srun"])
def test_no_mpi_from_inside_of_a_container(by: str) -> None:
    """mpirun and srun start the ranks; a container of the trainer has neither."""
    with pytest.raises(SpecError) as caught:
        launch("slurm", launch=by, slurm=Slurm(container=Container(runtime="pyxis", image="torch")))

    assert ["slurm.container.runtime"] == [problem.path for problem in caught.value.problems]


def test_srun_alone_starts_one_task_for_each_rank() -> None:
    """Without a PMI; the ranks are torch's, so that the gate looks at what their libraries take."""
    words = launch("slurm", launch="srun")

    assert ["srun", "--mpi=none", "--nodes=3", "--ntasks=6", "--ntasks-per-node=2"] == words[:5]
    assert ["{keeper}", "{python}"] == words[-2:]


def test_srun_is_refused_where_there_is_no_slurm() -> None:
    """Before anything is sent, with what goes there."""
    with pytest.raises(SpecError) as caught:
        launch("local", launch="srun")

    (problem,) = caught.value.problems
    assert ("launch", "srun", "another value for --to local") == (problem.path, problem.found, problem.wanted)
    assert "--to slurm" in problem.hint


@pytest.mark.parametrize("target", ["local", "slurm", "kubernetes"])
def test_a_command_that_is_the_launcher_is_started_as_it_is(target: str) -> None:
    """Once on each node, with its number and the gate's address; its ranks are counted when they come."""
    values = {"name": "job", "nodes": 2, "nproc_per_node": 4, "launch": "none", "image": "torch"}
    made = JobSpec(apiVersion="ddplaunch/v1", command=("accelerate", "launch"), **values)  # type: ignore[arg-type]
    job = plan.make(made, target, HERE).job

    where = ["NODE_RANK={node}", "MASTER_ADDR={master_addr}", "MASTER_PORT={master_port}"]
    assert (["env", *where], ["accelerate", "launch"]) == (job.launch, job.command)
    assert (None, None, False) == (job.nproc_per_node, job.keepers, job.mpi)
