"""A hub on Slurm that is killed: the job goes on, and the one in its place keeps the watch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import injuries
from tests.chaos import scenario as roles
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import STEPS, Job

from ddplaunch.agent.contract import Files, JobStatus, Phase, Verdict, codec

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


@pytest.mark.whole
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


def hubs(job: Job) -> list[int]:
    """The hub and the parent that would start it again; both, once it is there."""
    found = injuries.Search(lambda environ: environ.get("SLURM_JOB_ID") == str(job.number))()
    return [each.pid for each in found if each.role == roles.HUB]


def send(job: Job, number: signal.Signals) -> None:
    """A signal to the hub and its parent, at once: none of them sees the other's end."""
    pids = hubs(job)
    assert len(pids) == 2
    for pid in (*pids, *pids[: number == signal.SIGKILL]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.whole
def test_jobs_whose_hubs_are_gone_for_good(
    cluster: Cluster, work: Path, task_prolog: Callable[[str], None]
) -> None:
    """Their scripts take the nodes' word. One hub was killed, one stopped; one job's ranks never come."""
    task_prolog('[ "$SLURM_JOB_NAME.$SLURM_STEP_ID.$SLURM_NODEID" != never.1.1 ] || exit 1')
    killed = submit(cluster, work, "killed", STOPS.format(path=str(work / "go")))
    stopped = submit(cluster, work, "stopped", STEPS, command=["program.py", "5"])
    never = submit(cluster, work, "never", STEPS)
    killed.up()
    send(killed, signal.SIGKILL)
    (work / "go").touch()
    stopped.up()
    send(stopped, signal.SIGSTOP)

    assert ("FAILED", never.exit_code) == (never.ended(60), "20:0")
    assert ("FAILED", "50:0") == (killed.ended(60), killed.exit_code)
    assert "error: the hub on n1 was killed by signal 9" in killed.output
    found = killed.bundle()
    assert found.evidence is not None
    assert [0, 1] == [each.node for each in found.evidence.evidence]
    assert ([("rank-stopped", [1])], 50) == ([(v.code, v.ranks) for v in found.verdicts], found.exit_code)
    assert (Phase.ENDED, 50, found.verdicts) == end(killed)
    assert ("COMPLETED", "0:0") == (stopped.ended(90), stopped.exit_code)
    assert (Phase.ENDED, 0, []) == end(stopped)
    for job in (killed, stopped, never):
        assert "ddplaunch-node" not in job.output
        job.leaves_nothing()


def submit(cluster: Cluster, work: Path, name: str, program: str, **keys: Any) -> Job:
    """A job in a folder of its own."""
    folder = work / name
    folder.mkdir()
    return Job.submit(
        cluster, folder, program, name=name, watchdog={"notice_after": "2s", "kill_after": "6s"}, **keys
    )


def end(job: Job) -> tuple[str, int | None, list[Verdict]]:
    """As its status has it."""
    status = codec.read(JobStatus, str(job.folder / Files.STATUS))
    return status.phase, status.exit_code, status.verdicts
