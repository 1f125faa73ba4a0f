"""Ranks that an MPI launcher starts: variables, keepers, and whole jobs under a real mpirun."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.agent.local.jobs import Job
from tests.agent.local.jobs import _job as _job  # the fixture `job`

from ddplaunch.agent.contract import Exit, Files, JobPlan, Verdict, bundle_file
from ddplaunch.agent.supervisor import launch_options

PLAN = JobPlan("job", 3, 2, ["mpirun", "-n", "6", "{keeper}"], ["true"], keepers=True)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "5"}, (5, 1)),
        ({"PMIX_RANK": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "1"}, (3, 1)),
        ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0"}, (2, 0)),
        ({"SLURM_PROCID": "7", "SLURM_LOCALID": "3"}, (7, 3)),
        ({"RANK": "1", "LOCAL_RANK": "1"}, None),
        ({"PMI_RANK": "", "SLURM_LOCALID": "0"}, None),
    ],
)
def test_each_launcher_has_own_variables_for_a_rank(environment: dict[str, str], expected: object) -> None:
    assert expected == launch_options.mpi_numbers(environment)


def test_launchers_are_known_by_name() -> None:
    names = ("mpirun", "/opt/mpi/bin/mpiexec.hydra", "srun", "python", "mpi")
    assert [True] * 3 + [False] * 2 == [launch_options.is_mpi_launcher([name, "-n", "2"]) for name in names]


def test_on_slurm_the_launcher_does_not_see_the_supervisors_step() -> None:
    """A step that holds all CPUs, and one task on each node, are the supervisor's, not the job's."""
    given = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_STEP_ID": "1",
        "SLURM_NTASKS": "3",
        "SLURM_TASKS_PER_NODE": "1(x3)",
        "SLURM_MPI_TYPE": "none",
        "PMIX_RANK": "0",
    }
    made = launch_options.mpi_launcher_environment(PLAN, given)

    assert {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOBID": "7",
        "SLURM_NODELIST": "n[1-3]",
        "SLURM_NNODES": "3",
        "SLURM_TASKS_PER_NODE": "2(x3)",
        "SLURM_PMIX_FENCE": "ring",
    } == {name: value for name, value in made.items() if "MCA" not in name}


@pytest.mark.parametrize("name", ["SLURM_PMIX_FENCE", "SLURM_PMIX_DIRECT_CONN", "PMIX_MCA_gds"])
def test_on_slurm_what_sets_up_pmix_is_kept(name: str) -> None:
    """Well-known ways around its flaws are set by variables that begin as those of a step do."""
    assert "own" == launch_options.mpi_launcher_environment(PLAN, {"SLURM_JOB_ID": "7", name: "own"})[name]


def test_on_slurm_what_the_job_file_sets_is_kept() -> None:
    plan = JobPlan("job", 3, 2, ["srun", "{keeper}"], ["true"], keepers=True, env={"SLURM_CPU_BIND": "none"})
    given = {"SLURM_JOB_ID": "7", "SLURM_CPU_BIND": "none"}

    assert "none" == launch_options.mpi_launcher_environment(plan, given)["SLURM_CPU_BIND"]


def test_the_users_own_settings_of_mpi_go_before() -> None:
    name = "OMPI_MCA_hwloc_base_binding_policy"

    assert ("none", "core") == (
        launch_options.mpi_launcher_environment(PLAN, {})[name],
        launch_options.mpi_launcher_environment(PLAN, {name: "core"})[name],
    )


@pytest.fixture(name="mpi")
def _mpi(job: Job) -> Callable[..., Job]:
    """A function that starts a job of several nodes on this machine, whose ranks a real mpirun starts."""
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun: scripts/system-packages installs Open MPI")

    def start(program: str, nodes: int = 2, **plan: Any) -> Job:
        """Two ranks on each node run `program`."""
        (job.folder / "train.py").write_text(program)
        words = ["mpirun", "-n", str(2 * nodes), "{keeper}", "{python}"]
        where: dict[str, Any] = {"workdir": str(job.folder), "env": AS_ROOT, "names": ["127.0.0.1"] * nodes}
        how = {"nproc_per_node": 2, "keepers": True, "python": sys.executable, "command": ["train.py"]}
        job.start("", nodes=nodes, **{"launch": words, **where, **how, **plan})
        return job

    return start


def only(job: Job) -> Verdict:
    """The one that the job has left."""
    (verdict,) = bundle_file.read(str(job.folder / Files.BUNDLE)).verdicts
    return verdict


SAYS = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "DDPLAUNCH_NODE", "MASTER_ADDR")
print(*(os.environ[name] for name in names), flush=True)
"""


@pytest.mark.processes
def test_every_node_shows_its_own_ranks(mpi: Callable[..., Job]) -> None:
    """mpirun runs on node 0 alone; each rank is at home on its node, with what torch.distributed reads."""
    job = mpi(SAYS)

    assert Exit.OK == job.end()
    output = (job.folder / Files.OUTPUT).read_text()
    told = sorted(line for line in output.splitlines() if "127.0.0.1" in line)
    assert [f"[{n // 2}/{n}] {n} {n % 2} 4 2 {n // 2} 127.0.0.1" for n in range(4)] == told
    assert [] == job.processes()


@pytest.mark.whole
@pytest.mark.processes
def test_a_rank_of_another_node_that_fails_is_named(mpi: Callable[..., Job]) -> None:
    """Its exit code is seen although mpirun, on node 0, is who waits for it; the others are its victims."""
    job = mpi(
        "import os, sys, time\nrank = os.environ['RANK']\nopen(f'up-{rank}', 'w')\n"
        "while rank == '3':\n    time.sleep(0.1)\n"
        "    if all(os.path.exists(f'up-{other}') for other in range(3)): time.sleep(1), sys.exit(7)\n"
        "time.sleep(60)"
    )

    assert Exit.WORKER_FAILED == job.end()
    verdict = only(job)
    seen = verdict.code, verdict.ranks, verdict.nodes, verdict.victims
    assert ("rank-failed", [3], [1], [0, 1, 2]) == seen
    assert "exit code 7" in verdict.sentence
    assert [] == job.processes()


@pytest.mark.processes
def test_without_mpirun_the_job_ends_at_the_gate(mpi: Callable[..., Job]) -> None:
    job = mpi(SAYS, env={"PATH": "/nowhere"})

    assert Exit.MISCONFIGURED == job.end()
    verdict = only(job)
    assert ("image-lacks", [0]) == (verdict.code, verdict.nodes)
    assert "mpirun" in verdict.sentence


@pytest.mark.processes
def test_an_mpirun_of_the_users_own_has_its_ranks(job: Job, mpi: Callable[..., Job]) -> None:
    """`ddplaunch run -- mpirun …`: no keeper is between, mpirun carries the output, a dead rank is named."""
    (job.folder / "own.py").write_text(
        "import os, time\nrank = os.environ['OMPI_COMM_WORLD_RANK']\nprint(f'it runs {rank}\\n', end='')\n"
        "time.sleep(4)\nif rank == '1': os._exit(7)\ntime.sleep(60)"
    )
    # One write for a line: mpirun mixes what two ranks write in pieces.
    words = ["mpirun", "--oversubscribe", "-n", "2", sys.executable, "own.py"]
    mpi("", nodes=1, launch=[], command=words, keepers=None, nproc_per_node=None)

    assert Exit.WORKER_FAILED == job.end()
    verdict = only(job)
    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims), verdict
    output = (job.folder / Files.OUTPUT).read_text().splitlines()
    assert {"[0/launch] it runs 0", "[0/launch] it runs 1"} <= {*output}
    assert [] == job.processes()
