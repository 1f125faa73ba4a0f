"""Real faults of a real training on Slurm: the verdict, the rank or the node, and how soon."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job
from tests.cluster.slurm.machines import ROOT
from tests.cluster.training import GREEDY, NEVER, TRAIN
from tests.local.secret_forms import texts
from tests.webhook import SECRET

from ddplaunch.agent.contract import Verdict

pytestmark = pytest.mark.slow
Start = Callable[..., Job]
RECEIVER = ROOT / "tests/cluster/receiver.py"
FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture(name="start")
def _start(cluster: Cluster, work: Path) -> Start:
    """A function that submits two nodes with a rank each, whose loop has this fault."""

    def start(before: str = "", step: str = "pass", *options: str, **keys: Any) -> Job:
        watchdog = {"notice_after": "5s", "kill_after": "12s", **keys.pop("watchdog", {})}
        program = TRAIN.format(before=before, step=step)
        return Job.submit(cluster, work, program, *options, watchdog=watchdog, **keys)

    return start


def ended(job: Job, exit_code: int) -> Verdict:
    """The only verdict of a job that has failed with this exit code of the agent."""
    state = job.ended(60)
    print(job.output)
    assert ("FAILED", f"{exit_code}:0") == (state, job.exit_code)
    job.leaves_nothing()
    return job.verdict


def at(job: Job, kind: str, text: str = "") -> float:
    """When the first such event was."""
    return next(event.at for event in job.bundle().events if event.kind == kind and text in event.text)


@pytest.mark.whole
@pytest.mark.fault("network-lost")
def test_a_node_is_cut_off(cluster: Cluster, start: Start) -> None:
    """All but Slurm's own connections: Slurm sees nothing, and the node is known within ten seconds.

    A comment that was given to sbatch stays.
    """
    job = start("", "pass", "--comment=mine")
    job.up()
    cluster.nft("n2", "drop")
    cluster.nft("n2", "drop", hook="output")

    job.said("the job has failed, for a node or the network")
    found = job.verdict
    assert ("network-lost", [1], [0]) == (found.code, found.nodes, found.victims)
    assert found.sentence.startswith("node 1 (n2) stopped answering at ")
    lost = job.bundle().evidence
    assert lost is not None
    assert at(job, "notice") - lost.lost[0].at < 8 + BUSY * 3
    assert "n2\n" == (job.folder / "run/faulty").read_text()
    job.ended(60)
    assert "mine" == job.comment


@pytest.mark.whole
def test_a_cut_that_is_mended_ends_nothing(cluster: Cluster, work: Path) -> None:
    """The notice is taken back and the job runs to its end; a webhook and Slurm's comment say so.

    The webhook's URL is in no file but the one that holds it, and Prometheus' figures are served meanwhile.
    """
    program = (
        f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists('{work}/go'): time.sleep(0.2)\n"
    )
    hook = work / "hook"
    hook.write_text(f"http://{cluster.address('ctl')}:8000/{SECRET}\n")
    hook.chmod(0o600)
    with cluster.start("ctl", [sys.executable, RECEIVER, "8000"]) as server:
        assert server.stdout is not None
        assert "ready\n" == server.stdout.readline()
        notify, metrics = [{"webhook": {"file": str(hook)}}], {"port": 9400, "address": "0.0.0.0"}
        job = Job.submit(cluster, work, program, notify=notify, metrics=metrics)
        job.up()
        cluster.nft("n2", "drop")
        job.said("network-lost: node 1 (n2) stopped answering")
        job.comes("ddplaunch: notice: network-lost: node 1 (n2) stopped answering")
        url = f"http://{cluster.address('n1')}:9400/metrics"
        figures = cluster.run("n3", [sys.executable, "-c", FETCH, url]).stdout
        cluster.run("n2", ["nft", "flush", "ruleset"])
        job.said("node 1 (n2) answers again")
        job.comes("ddplaunch: the notice is withdrawn")
        (work / "go").touch()
        assert ("COMPLETED", "0:0") == (job.ended(60), job.exit_code)
        server.terminate()
        got = [json.loads(line) for line in server.stdout]

    assert [] == job.bundle().verdicts
    assert ["notice", "withdrawn", "end"] == [each["occasion"] for each in got]
    assert {(f"/{SECRET}", f"slurm://{job.number}")} == {(each["path"], each["handle"]) for each in got}
    assert got[0]["text"].startswith(
        "job goes on, with a notice: network-lost: node 1 (n2) stopped answering"
    )
    assert 'ddplaunch_verdicts{job_name="job",code="network-lost"} 1\n' in figures
    assert 'ddplaunch_job_info{job_name="job",attempt="0",nodes="2"} 1\n' in figures
    assert ["hook"] == [name for name, text in texts(work).items() if SECRET in text]


@pytest.mark.whole
def test_a_node_whose_disk_is_full_ends_nothing(cluster: Cluster, work: Path) -> None:
    """Its rank prints on, the loss is reported once, and its output goes on when there is room again."""
    program = (
        "import os, time\nprint('up')\n"
        f"while not os.path.exists('{work}/go'): time.sleep(0.02); print('x' * 999)\n"
        "print('the last')\n"
    )
    job = Job.submit(cluster, work, program)
    job.up()
    cluster.run("n2", ["sh", "-c", "cat /dev/zero >/tmp/filler || true"])
    job.said("output is lost until it can")
    cluster.run("n2", ["rm", "/tmp/filler"])
    job.said("[1/1] ... output is missing here: No space left on device\n")
    (work / "go").touch()

    assert ("COMPLETED", 1) == (job.ended(), job.output.count("[1/ddplaunch] cannot write "))
    assert "[1/1] the last\n" in job.output


@pytest.mark.whole
@pytest.mark.fault("rank-exited-early")
def test_a_rank_is_done_before_the_others(start: Start) -> None:
    """Uneven data on the second node."""
    job = start(step="if rank == 1 and step == 20: return")

    found = ended(job, 40)
    assert ("rank-exited-early", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)


@pytest.mark.whole
@pytest.mark.fault("rank-in-dataloader")
def test_a_rank_waits_for_its_data(start: Start) -> None:
    """The loader's worker on the second node reads for ever."""
    job = start(NEVER, "batch(rank)")

    found = ended(job, 50)
    assert ("rank-in-dataloader", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    assert "    rank 1: on node 1 (n2)" in job.output
    assert "(program.py:" in found.sentence


@pytest.mark.whole
@pytest.mark.fault("rank-killed-memory")
def test_a_rank_takes_more_memory_than_the_job_has(start: Start) -> None:
    """Slurm's memory cgroup kills it: the rank and its node are named, with the limit."""
    job = start(GREEDY, "rank == 1 and step > 3 and eat()")

    found = ended(job, 41)
    assert ("rank-killed-memory", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    assert "rank 1 was killed for memory on node 1 (n2): limit 900 MiB" in found.sentence
