"""The Slurm backend of this process on the cluster of the tests, and jobs that need no training."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.unit.backends.conftest import status_json

from ddplaunch.agent.contract import Phase
from ddplaunch.backends.job import Handle, Job
from ddplaunch.backends.slurm.backend import SlurmBackend
from ddplaunch.render import Rendered, RenderedFile

Make = Callable[..., Rendered]
PROGRAMS = ("sbatch", "squeue", "scontrol", "sinfo", "sacct", "scancel", "srun")

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
{directives}
folder=$PWD/{name}-$SLURM_JOB_ID
mkdir -p "$folder/run"
status() {{ printf '%s' "$1" >"$folder/run/new" && mv "$folder/run/new" "$folder/run/status.json"; }}
"""


class Login:
    """Slurm's commands as they stand on PATH: each runs on the login machine, and is counted."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.calls = folder / "calls"
        folder.mkdir()
        for program in PROGRAMS:
            self.write(program, self.real(program))

    def real(self, program: str) -> str:
        """The shell's words for the program itself."""
        path = shutil.which(program, path=os.defpath)
        assert path is not None
        return shlex.join(self.cluster.words("ctl", [path], cwd="@")).replace("@", '"$PWD"')

    def write(self, program: str, command: str) -> None:
        """Let `program` be `command`, which gets its arguments."""
        script = self.folder / program
        script.write_text(f'#!/bin/bash\necho {program} "$*" >>{self.calls}\n{command} "$@"\n')
        script.chmod(0o755)

    def count(self, program: str) -> int:
        """How often it was called."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return sum(line.split()[0] == program for line in lines)


@pytest.fixture(name="login")
def _login(cluster: Cluster, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """We stand in `work`, and Slurm's commands are at hand."""
    login = Login(cluster, tmp_path / "bin")
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{login.folder}:{cluster.env['PATH']}")
    monkeypatch.chdir(work)
    return login


@pytest.fixture(name="backend")
def _backend(login: Login, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> SlurmBackend:
    """With a state folder of its own, and asking Slurm as often as the test does."""
    monkeypatch.setattr("ddplaunch.backends.slurm.snapshot._FIRST_PAUSE", 0.0)
    monkeypatch.setattr("ddplaunch.backends.slurm.snapshot._LONGEST_PAUSE", 0.2)
    return SlurmBackend(cluster.shared / "state")


@pytest.fixture(name="job")
def _job() -> Make:
    """Makes what a renderer would, with a few lines of shell in place of the agent."""

    def make(
        script: str, *options: str, name: str = "digits", nodes: int = 1, ended: int | None = None
    ) -> Rendered:
        directives = "\n".join(f"#SBATCH {option}" for option in options)
        text = _SCRIPT.format(name=name, nodes=nodes, directives=directives) + f"{script}\n"
        if ended is not None:
            text += f"status '{status_json(exit_code=ended, phase=Phase.ENDED)}'\nexit {ended}\n"
        file = f"{name}.sbatch"
        return Rendered("slurm", name, {file: RenderedFile(text.encode())}, ("sbatch", file))

    return make


RUNNING = f"status '{status_json()}'"
FOREVER = f"{RUNNING}\nwhile :; do sleep 0.1; done"


def wait(
    cluster: Cluster,
    backend: SlurmBackend,
    handle: Handle,
    holds: Callable[[Job], object],
    seconds: float = 30,
) -> Job:
    """The job, once that holds of it."""
    job = backend.job(handle)

    def look() -> bool:
        nonlocal job
        job = backend.job(handle)
        return bool(holds(job))

    cluster.until(look, "the job stands as wanted", seconds, lambda: str(job))
    return job


def ended(cluster: Cluster, backend: SlurmBackend, handle: Handle) -> Job:
    """The job after its end."""
    return wait(cluster, backend, handle, lambda job: job.state.ended)
