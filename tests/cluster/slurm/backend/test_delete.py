"""A job of Slurm is deleted with all that it has left, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.backend.commands import ddplaunch
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
SAVES = """\
import os, pathlib
if os.environ["RANK"] == "0":
    pathlib.Path(os.environ["DDPLAUNCH_RESUME_DIR"], "last.pt").write_bytes(b"x" * 3000)
"""


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_what_a_job_has_left_goes_and_nothing_else(cluster: Cluster, work: Path) -> None:
    """Its folder, its output and our record; a checkpoint among them is named, and a link's target stays."""
    (work / "job.yaml").write_text(JOB)
    (work / "toy.py").write_text(SAVES)
    (work / "data").mkdir()
    (work / "data" / "set.bin").write_text("precious")
    waited = ddplaunch(cluster, work, "submit", "--to", "slurm", "--wait", "job.yaml")
    handle = waited.stdout.strip()
    number = handle.removeprefix("slurm://")
    (work / f"toy-{number}" / "data").symlink_to(work / "data")
    (work / f"toy-{number}1.out").write_text("another's")
    before = _files(work)

    shown = ddplaunch(cluster, work, "delete", handle, check=False)
    assert (2, "") == (shown.returncode, shown.stdout)
    assert "of these the ranks wrote 1 file, 2.9 KiB" in shown.stderr
    for part in (work / f"toy-{number}", work / f"toy-{number}.out", work / "state/ddplaunch/slurm/toy-"):
        assert f"    {part}" in shown.stderr
    assert before == _files(work)

    assert f"{handle}\n" == ddplaunch(cluster, work, "delete", "toy", "--yes").stdout
    gone = before - _files(work)
    assert gone
    own = (f"toy-{number}/", "state/ddplaunch/slurm/toy-")
    assert all(f"{each}/".startswith(own) or each == f"toy-{number}.out" for each in gone), gone
    assert "precious" == (work / "data" / "set.bin").read_text()
    assert not [each for each in _files(work) if each.startswith(own) or each == f"toy-{number}.out"]


@pytest.mark.whole
def test_a_job_that_runs_is_stopped_first(cluster: Cluster, work: Path) -> None:
    """Only when asked to; --ended and --older leave it alone."""
    (work / "job.yaml").write_text(JOB)
    (work / "toy.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    handle = ddplaunch(cluster, work, "submit", "--to", "slurm", "job.yaml").stdout.strip()
    number = int(handle.removeprefix("slurm://"))
    cluster.running(number)

    assert (
        "nothing to delete" in ddplaunch(cluster, work, "delete", "--ended", "--to", "slurm", "--yes").stderr
    )
    refused = ddplaunch(cluster, work, "delete", handle, "--yes", check=False)
    assert (2, True) == (refused.returncode, "use --cancel to stop it first" in refused.stderr)
    assert "RUNNING" == cluster.state(number)
    assert f"{handle}\n" == ddplaunch(cluster, work, "delete", handle, "--cancel", "--yes").stdout
    assert not list(work.glob("toy-*"))


def test_what_others_have_submitted_is_not_touched(cluster: Cluster, work: Path) -> None:
    """Not by its handle, and not by --ended; nor its own folder of the name that ours would have."""
    number = cluster.submit("#!/bin/sh\necho up\n", "--job-name=own", cwd=work)
    cluster.ended(number)
    unknown = ddplaunch(cluster, work, "outputs", f"slurm://{number}", check=False)
    assert (102, True) == (unknown.returncode, "does not know where" in unknown.stderr)
    refused = ddplaunch(cluster, work, "delete", f"slurm://{number}", "--yes", check=False)
    assert (2, True) == (refused.returncode, "was not started by ddplaunch" in refused.stderr)
    assert (
        "nothing to delete" in ddplaunch(cluster, work, "delete", "--ended", "--to", "slurm", "--yes").stderr
    )
    assert (work / f"slurm-{number}.out").exists()

    results = work / f"own-{number}"
    results.mkdir()
    (results / "last.pt").write_text("precious")
    refused = ddplaunch(cluster, work, "delete", f"slurm://{number}", "--yes", check=False)
    assert (2, True) == (refused.returncode, "was not started by ddplaunch" in refused.stderr)
    assert (results / "last.pt").exists()
