"""A hub on Slurm that is killed: the job goes on, and the one in its place keeps the watch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

pytestmark = pytest.mark.slow

STOPS = """
import os, signal, time
print("up", flush=True)
while not os.path.exists({path!r}):
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
"""
"""Rank 1 is stopped as soon as the path is there."""


def test_a_hang_after_the_hub_was_killed(cluster: Cluster, work: Path) -> None:
    """Both nodes come back to the hub in its place, which ends the job at `kill_after` and names the rank."""
    program = STOPS.format(path=str(work / "go"))
    job = Job.submit(cluster, work, program, watchdog={"notice_after": "3s", "kill_after": "10s"})
    job.up()
    hub = json.loads((job.folder / "run/hub.json").read_text())["pid"]
    cluster.run("n1", ["kill", "-KILL", str(hub)])
    job.said("the hub answers again", 2)
    (work / "go").touch()

    assert ("FAILED", "50:0") == (job.ended(60), job.exit_code)
    found = job.verdict
    assert ("rank-stopped", [1], [1]) == (found.code, found.ranks, found.nodes)
    assert "the hub was killed by signal 9; it is started again" in job.output
    assert [0, 1] == [each.node for each in job.bundle().check_ins]
    job.leaves_nothing()
