"""A folder that the nodes do not see, and batch scripts of others: found and named by what Slurm says."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.slurm.backend.commands import ddplaunch, start
from tests.cluster.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

JOB = """\
apiVersion: ddplaunch/v1
name: toy
nodes: 2
source: [toy.py]
command: [toy.py]
resources: {memory: 900Mi}
"""


@pytest.fixture(name="here")
def _here() -> Iterator[Path]:
    """A folder of the login machine, whose /tmp is not that of the nodes."""
    folder = Path(tempfile.mkdtemp(prefix="ddplaunch-here-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_the_nodes_do_not_see(cluster: Cluster, work: Path, here: Path) -> None:
    """The first mistake of most. The folder and the node are named."""
    (here / "job.yaml").write_text(JOB)
    (here / "toy.py").write_text("print('up')\n")
    words = ["submit", "--to", "slurm", "--wait", str(here / "job.yaml")]
    waited = ddplaunch(cluster, work, *words, check=False, cwd=here)
    handle = waited.stdout.strip()

    if cluster.release >= (24, 11):
        # Slurm makes the folder on the first node, so the job succeeds, and nobody here sees what it wrote.
        name = f"toy-{handle.rpartition('/')[2]}"
        told = f"its folder {here / name} is not on this machine: n1 may not share {here}"
        assert (0, True) == (waited.returncode, told in waited.stderr), waited.stderr
        assert told in ddplaunch(cluster, work, "list", "--to", "slurm").stdout
        logs = ddplaunch(cluster, work, "logs", handle, check=False)
        assert f"cannot be read on this machine: {here / name}.out" in logs.stderr
        return
    told = f"the folder {here} is not on n1, or is not writable there"
    assert (104, True) == (waited.returncode, told in waited.stderr), waited.stderr
    assert "submit from a folder that the nodes share" in waited.stderr
    assert "signal" not in waited.stderr
    status = ddplaunch(cluster, work, "status", handle, check=False)
    assert told in status.stdout
    found = json.loads(ddplaunch(cluster, work, "diagnose", "--json", handle, check=False).stdout)
    assert [("launch-failed", "launch")] == [(each["code"], each["where"]) for each in found["verdicts"]]
    assert "launch-failed" in ddplaunch(cluster, work, "list", "--to", "slurm").stdout


def test_what_a_script_of_others_prints_is_read(cluster: Cluster, work: Path) -> None:
    """By Slurm's own pattern, which Slurm itself fills in only in part."""
    script = "#!/bin/sh\necho up\necho 'Traceback: boom' >&2\nexit 3\n"
    number = cluster.submit(script, "--output=o ut-%x-%N-%%.log", "--job-name=own", cwd=work)
    cluster.ended(number)

    handle = f"slurm://{number}"
    assert "up\nTraceback: boom\n" == ddplaunch(cluster, work, "logs", handle).stdout
    assert "boom\n" == ddplaunch(cluster, work, "logs", handle, "--tail", "1").stdout[-5:]
    status = ddplaunch(cluster, work, "status", handle, check=False)
    assert (100, True) == (status.returncode, "Traceback: boom" in status.stdout), status.stdout


def test_a_job_of_others_is_listed_while_it_runs(cluster: Cluster, work: Path) -> None:
    """And follows into its end."""
    script = "#!/bin/sh\necho up\nuntil [ -e go ]; do sleep 0.2; done\necho done\n"
    number = cluster.submit(script, "--job-name=own", cwd=work)
    cluster.running(number)

    listed = ddplaunch(cluster, work, "list", "--to", "slurm").stdout
    assert [f"slurm://{number}", "own", "running"] == listed.splitlines()[1].split()[:3]
    followed = start(cluster, work, "logs", "-f", f"slurm://{number}")
    assert followed.stdout is not None
    assert "up\n" == followed.stdout.readline()
    (work / "go").touch()
    assert ("done\n", "") == followed.communicate(timeout=60)


def test_a_task_of_an_array_has_its_own_output(cluster: Cluster, work: Path) -> None:
    """Slurm shows all tasks, under the number of the last."""
    number = cluster.submit("#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n", "--array=3-4", cwd=work)
    cluster.until(lambda: len(list(work.glob("slurm-*.out"))) == 2, "both tasks have printed", 30)
    cluster.until(lambda: "task 4" in (work / f"slurm-{number}_4.out").read_text(), "the last has", 20)

    assert "task 4\n" == ddplaunch(cluster, work, "logs", f"slurm://{number}").stdout


def test_output_that_is_thrown_away_is_said(cluster: Cluster, work: Path) -> None:
    """In place of "has printed nothing"."""
    number = cluster.submit("#!/bin/sh\necho up\n", "--output=/dev/null", cwd=work)
    cluster.ended(number)

    refused = ddplaunch(cluster, work, "logs", f"slurm://{number}", check=False)
    assert (106, True) == (refused.returncode, "its batch script prints to /dev/null" in refused.stderr)
