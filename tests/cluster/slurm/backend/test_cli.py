"""The commands of a person on the login machine, with the real agent in the job."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import IO

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.backend.commands import ddplaunch, start
from tests.cluster.slurm.backend.conftest import Login
from tests.cluster.slurm.cluster import Cluster

from ddplaunch.backends.job import Handle, State
from ddplaunch.backends.slurm.backend import SlurmBackend

pytestmark = pytest.mark.slurm

JOB = """\
apiVersion: ddplaunch/v1
name: steps
nodes: 2
source: [steps.py]
command: [steps.py]
resources: {memory: 2Gi}
"""
STEPS = """\
import itertools, time
for step in itertools.count():
    print("step", step, flush=True)
    time.sleep(0.2)
"""


@pytest.fixture(name="files")
def _files(work: Path) -> Path:
    """A job that prints steps until it is ended."""
    (work / "job.yaml").write_text(JOB)
    (work / "steps.py").write_text(STEPS)
    return work


@pytest.fixture(name="backend")
def _backend(login: Login, cluster: Cluster, files: Path) -> SlurmBackend:
    """Of this process, which is not in the cluster's network; with the state folder of `ddplaunch` there."""
    return SlurmBackend(files / "state/ddplaunch")


def until(stream: IO[str] | None, text: str) -> None:
    """Read on until a line holds this."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"no line with {text!r} in {''.join(seen)}")


def test_a_job_that_is_left_alone_asked_and_ended(
    cluster: Cluster, files: Path, backend: SlurmBackend
) -> None:
    """Ctrl-C leaves it alone; its evidence is had through a step beside it; cancel leaves that of all."""
    process = start(cluster, files, "submit", "job.yaml", "--to", "slurm", "--wait")
    until(process.stderr, "[1/1] step 3")
    process.send_signal(signal.SIGINT)
    said, rest = process.communicate(timeout=BUSY * 30)
    handle = Handle.parse(said.strip())
    asked = backend.collect(handle)
    there = json.loads(ddplaunch(cluster, files, "diagnose", str(handle), "--json").stdout)
    status = ddplaunch(cluster, files, "status", str(handle), check=False)
    listed = ddplaunch(cluster, files, "list", "--to", "slurm").stdout.splitlines()
    ddplaunch(cluster, files, "cancel", str(handle))
    after = json.loads(ddplaunch(cluster, files, "status", str(handle), "--json", check=False).stdout)
    left = backend.collect(handle)

    assert (101, f"{handle}\n") == (process.returncode, said)
    assert f"detached; {handle} goes on\n  ddplaunch logs -f {handle}" in rest
    assert asked is not None
    assert asked.evidence is not None
    assert ("asked", [1, 1]) == (asked.evidence.why, [len(node.ranks) for node in asked.evidence.evidence])
    assert ("asked", 2) == (there["evidence"]["why"], there["evidence"]["ranks"])
    assert (101, "running") == (status.returncode, there["state"])
    assert [[str(handle), "steps", "running"]] == [line.split()[:3] for line in listed[1:]]
    ended = ("cancelled", 60, "by `ddplaunch cancel`")
    assert ended == (after["state"], after["exit_code"], after["detail"])
    assert left is not None
    assert "the job is ended by `ddplaunch cancel`" in [event.text for event in left.events]
    assert left.evidence is not None
    assert (60, [1, 1]) == (left.exit_code, [len(node.ranks) for node in left.evidence.evidence])
    assert State.CANCELLED is backend.job(handle).state


def test_ctrl_c_before_the_handle_leaves_no_job(cluster: Cluster, files: Path) -> None:
    """Nobody wants a job that he has no handle of; a second Ctrl-C does not break its removal off."""
    cluster.configure("MessageTimeout=30")
    before = cluster.login(["squeue", "--noheader", "--states=all", "--format=%A"]).stdout.split()
    slow = files / "bin/sbatch"
    slow.parent.mkdir()
    slow.write_text('#!/bin/bash\n/usr/bin/sbatch "$@" >id\ntouch called\nsleep 30\ncat id\n')
    slow.chmod(0o755)
    cancels = slow.with_name("scancel")
    cancels.write_text('#!/bin/bash\ntouch cancelling\nsleep 2\nexec /usr/bin/scancel "$@"\n')
    cancels.chmod(0o755)
    process = subprocess.Popen(
        cluster.words("ctl", ["ddplaunch", "submit", "job.yaml", "--to", "slurm"], cwd=files),
        env={
            **cluster.env,
            "PATH": f"{slow.parent}:{cluster.env['PATH']}",
            "XDG_STATE_HOME": str(files / "state"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cluster.until((files / "called").exists, "sbatch was called", 20)
    process.send_signal(signal.SIGINT)
    cluster.until((files / "cancelling").exists, "the job is taken back", BUSY * 30)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=BUSY * 30)
    after = cluster.login(["squeue", "--noheader", "--states=all", "--format=%A"]).stdout.split()
    made = [int(number) for number in after if number not in before]

    assert (130, "") == (process.returncode, said)
    assert ["CANCELLED"] == [cluster.ended(number) for number in made]


def test_doctor_shows_who_reaches_whom(cluster: Cluster, files: Path) -> None:
    """For people as a page with a map, for scripts as letters."""
    (files / "job.yaml").write_text(JOB + "rendezvous: {port: 29500}\n")
    cluster.nft("n1", "ip saddr 10.99.0.12 tcp dport 29500 drop")
    words = ["doctor", "job.yaml", "--to", "slurm", "--json", "--html", "doctor.html"]
    done = ddplaunch(cluster, files, *words, check=False)

    found = json.loads(done.stdout)
    assert (104, ["port-filtered"]) == (done.returncode, [each["code"] for each in found["verdicts"]])
    assert ["oo", "t."] == found["reachability"]["rows"]
    assert {0, 1} == {each["node"] for each in found["checks"]}
    page = (files / "doctor.html").read_text()
    assert "<title>node 1 (n2) to node 0 (n1): 10.99.0.11 port 29500 (master): timeout, " in page
