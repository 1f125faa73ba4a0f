"""Two nodes do the same behind `run --join` under srun, and in a job file as in a batch script."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.machines import CONTROLLER
from tests.transparent import nodes
from tests.transparent.compare import PROGRAMS, Outcome, differences
from tests.transparent.table import Row

from ddplaunch.render.archive import agent_archive

NODES = 2
HEAD = "NODE=$SLURM_NODEID FIRST=n1; export NODE FIRST; "
ROWS = [
    pytest.param(row, id=row.name, marks=[pytest.mark.whole] if row.whole else []) for row in nodes.OF_NODES
]
AS_JOBS = ("exits-0", "exits-7", "restart", "torchrun-or-torchrun")

pytestmark = pytest.mark.timeout(600)


class Side:
    """One of the two: a folder that is empty but for the programs, at the same path for both."""

    def __init__(self, cluster: Cluster, work: Path, row: Row) -> None:
        self._cluster = cluster
        self._work = work
        self._row = row
        self.here = work / "here"
        shutil.copytree(PROGRAMS, self.here, ignore=shutil.ignore_patterns("__pycache__"))

    def end(self) -> None:
        shutil.rmtree(self.here)

    def srun(self, *, under: bool) -> Outcome:
        """As a step of two tasks, one on each node."""
        words = ["srun", f"-N{NODES}", "--ntasks-per-node=1", "--mem=2000", "--kill-on-bad-exit=0"]
        words += [f"--output={self._work}/out-%n", f"--error={self._work}/err-%n"]
        if under:
            words += [sys.executable, "-I", "-S", f"{self._work}/agent.pyz", "run", "--join", "--"]
        process = self._cluster.start(CONTROLLER, [*words, "sh", "-c", HEAD + self._row.command], self.here)
        self._signal(process)
        said, _ = process.communicate(timeout=BUSY * 200)
        files = [(self._work / f"out-{node}", self._work / f"err-{node}") for node in range(NODES)]
        streams = [(out.read_bytes(), err.read_bytes()) for out, err in files]
        found = nodes.outcome(process.returncode, streams, self.here, under=under)
        found.ours += said.encode()
        for file in (each for pair in files for each in pair):
            file.unlink()
        return found

    def _signal(self, process: subprocess.Popen[str]) -> None:
        """Send the row's signals by scancel, each once its text stands on both nodes."""
        for text, name in self._row.signals:
            paths = [self._work / f"out-{node}" for node in range(NODES)]
            self._cluster.until(
                lambda text=text, paths=paths: (
                    process.poll() is not None  # type: ignore[misc]
                    or all(path.exists() and text in path.read_text() for path in paths)
                ),
                f"{text} is printed on both nodes",
                60,
            )
            job = self._cluster.login(["squeue", "--noheader", "--format=%A"]).stdout.strip()
            self._cluster.login(["scancel", f"--signal={name}", job])

    def sbatch(self) -> Outcome:
        """A batch script whose srun starts the command on each node."""
        (self._work / "plain.sh").write_text(f"#!/bin/sh\nexec srun sh -c '{HEAD}{self._row.command}'\n")
        options = [f"-N{NODES}", "--ntasks-per-node=1", "--mem=2000", f"--output={self._work}/out"]
        words = ["sbatch", "--wait", *options, f"{self._work}/plain.sh"]
        done = self._cluster.login(words, cwd=self.here, check=False, timeout=200)
        return self._job(done)

    def submit(self) -> Outcome:
        """The same command in a job file."""
        spec = {
            "apiVersion": "ddplaunch/v1",
            "name": "table",
            "nodes": NODES,
            "launch": "none",
            "python": sys.executable,
            "command": ["sh", "-c", HEAD + self._row.command],
            "resources": {"memory": "2Gi"},
        }
        (self.here / "job.yaml").write_text(json.dumps(spec))
        words = ["ddplaunch", "submit", "job.yaml", "--to", "slurm", "--wait"]
        env = {"XDG_STATE_HOME": str(self._work / "state"), "DDPLAUNCH_PROFILE": "none"}
        done = self._cluster.login(words, cwd=self.here, env=env, check=False, timeout=240)
        return self._job(done)

    def _job(self, done: subprocess.CompletedProcess[str]) -> Outcome:
        found = nodes.outcome("well" if done.returncode == 0 else "failed", [], self.here, under=True)
        found.ours = (done.stdout + done.stderr).encode()
        own = ("table-", "job.yaml")
        found.files = {name: data for name, data in found.files.items() if not name.startswith(own)}
        return found


@pytest.mark.parametrize("row", ROWS)
def test_a_step_does_the_same_under_ddplaunch(cluster: Cluster, work: Path, row: Row) -> None:
    """Exit code of srun, streams of each node, files; signals by scancel come once."""
    (work / "agent.pyz").write_bytes(agent_archive())
    sides = []
    for under in (False, True):
        side = Side(cluster, work, row)
        sides.append(side.srun(under=under))
        side.end()

    differs = nodes.report(row, *sides)
    if differs:
        pytest.fail(differs, pytrace=False)


@pytest.mark.whole
@pytest.mark.parametrize("row", [row for row in nodes.OF_NODES if row.name in AS_JOBS], ids=str)
def test_a_job_ends_as_a_batch_script_with_its_command(cluster: Cluster, work: Path, row: Row) -> None:
    """Well or not, with the same files."""
    row = dataclasses.replace(row, compares=("files",))
    side = Side(cluster, work, row)
    plain = side.sbatch()
    side.end()
    side = Side(cluster, work, row)
    under = side.submit()

    found = differences(row, plain, under)
    if found:
        pytest.fail("\n".join([*found, plain.text(), under.text()]), pytrace=False)
