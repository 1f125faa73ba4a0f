"""Ranks that an MPI launcher starts: variables, keepers, and whole jobs under a real mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import Bundle, Exit, Files, JobPlan, bundle_file, codec
from ddplaunch.agent.supervisor import launch_options
from ddplaunch.agent.system import processes

PACKAGE = Path(processes.__file__).parents[3]
PLAN = JobPlan("job", 3, 2, ["mpirun", "-n", "6", "{keeper}"], ["true"], keepers=True)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SECONDS = BUSY * 60.0


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
def test_every_launcher_has_its_own_variables_for_a_rank(
    environment: dict[str, str], expected: object
) -> None:
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


class Job:
    """A job of several nodes on this machine, whose ranks a real mpirun starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: str, nodes: int = 2, **plan: object) -> None:
        """Two ranks on each node that run `program`."""
        (self.folder / "train.py").write_text(program)
        words = ["mpirun", "-n", str(2 * nodes), "{keeper}", "{python}"]
        values: dict[str, object] = {
            "launch": words,
            "command": ["train.py"],
            "workdir": str(self.folder),
            "env": AS_ROOT,
        }
        values.update({"names": ["127.0.0.1"] * nodes, "master_addr": "127.0.0.1", **plan})
        values = {"nproc_per_node": 2, "keepers": True, "python": sys.executable, **values}
        made = JobPlan("job", nodes, **values)  # type: ignore[arg-type]
        codec.write(str(self.folder / Files.PLAN), made)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddplaunch.agent", "local", "--folder", str(self.folder)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(SECONDS)

    @property
    def output(self) -> str:
        path = self.folder / Files.OUTPUT
        return path.read_text() if path.exists() else ""

    @property
    def bundle(self) -> Bundle:
        return bundle_file.read(str(self.folder / Files.BUNDLE))

    def survivors(self) -> list[int]:
        """Processes that still run the program."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.folder).encode() in path.read_bytes() + (path.parent / "environ").read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[Job]:
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun: scripts/system-packages installs Open MPI")
    job = Job(tmp_path)
    yield job
    if job.process is not None and job.process.poll() is None:
        job.process.kill()
        job.process.wait()


SAYS = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "DDPLAUNCH_NODE", "MASTER_ADDR")
print(*(os.environ[name] for name in names), flush=True)
"""


@pytest.mark.processes
def test_every_node_shows_its_own_ranks(job: Job) -> None:
    """mpirun runs on node 0 alone; each rank is at home on its node, with what torch.distributed reads."""
    job.start(SAYS)

    assert Exit.OK == job.end()
    told = sorted(line for line in job.output.splitlines() if "127.0.0.1" in line)
    assert [f"[{n // 2}/{n}] {n} {n % 2} 4 2 {n // 2} 127.0.0.1" for n in range(4)] == told
    assert [] == job.survivors()


@pytest.mark.processes
def test_a_rank_of_another_node_that_fails_is_named(job: Job) -> None:
    """Its exit code is seen although mpirun, on node 0, is who waits for it; the others are its victims."""
    job.start(
        "import os, sys, time\nrank = os.environ['RANK']\nopen(f'up-{rank}', 'w')\n"
        "while rank == '3':\n    time.sleep(0.1)\n"
        "    if all(os.path.exists(f'up-{other}') for other in range(3)): time.sleep(1), sys.exit(7)\n"
        "time.sleep(60)"
    )

    assert Exit.WORKER_FAILED == job.end()
    (verdict,) = job.bundle.verdicts
    assert ("rank-failed", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "exit code 7" in verdict.sentence
    assert [] == job.survivors()


@pytest.mark.processes
def test_without_mpirun_the_job_ends_at_the_gate(job: Job) -> None:
    job.start(SAYS, env={"PATH": "/nowhere"})

    assert Exit.MISCONFIGURED == job.end()
    (verdict,) = job.bundle.verdicts
    assert ("image-lacks", [0]) == (verdict.code, verdict.nodes)
    assert "mpirun" in verdict.sentence


@pytest.mark.processes
def test_an_mpirun_of_the_users_own_has_its_ranks(job: Job) -> None:
    """`ddplaunch run -- mpirun …`: no keeper is between, mpirun carries the output, a dead rank is named."""
    (job.folder / "own.py").write_text(
        "import os, time\nrank = os.environ['OMPI_COMM_WORLD_RANK']\nprint(f'it runs {rank}\\n', end='')\n"
        "time.sleep(4)\nif rank == '1': os._exit(7)\ntime.sleep(60)"
    )
    # One write for a line: mpirun mixes what two ranks write in pieces.
    words = ["mpirun", "--oversubscribe", "-n", "2", sys.executable, "own.py"]
    job.start("", nodes=1, launch=[], command=words, keepers=None, nproc_per_node=None)

    assert Exit.WORKER_FAILED == job.end()
    (verdict,) = job.bundle.verdicts
    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims), verdict
    assert {"[0/launch] it runs 0", "[0/launch] it runs 1"} <= {*job.output.splitlines()}
    assert [] == job.survivors()
