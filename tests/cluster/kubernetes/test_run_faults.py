"""Real faults of a real training in pods: the verdict, the rank or the node, and what the kubelet is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import Job, unplaced
from tests.cluster.kubernetes.told import KEYS, Receiver
from tests.cluster.training import GREEDY, NEVER, TRAIN
from tests.local.secret_forms import unpacked
from tests.webhook import SECRET

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.platforms import kubernetes

START = 240.0
"""Seconds for torch to come up on a machine that many share."""
pytestmark = pytest.mark.slow
Start = Callable[..., Job]


@pytest.fixture(name="start")
def _start(cluster: Cluster, namespace: str, tmp_path: Path) -> Start:
    """A function that submits two pods with a rank each, whose loop has this fault."""

    def start(before: str = "", step: str = "pass", **keys: Any) -> Job:
        watchdog = {"notice_after": "5s", "kill_after": "8s"}
        program = TRAIN.format(before=before, step=step)
        return Job.submit(cluster, namespace, tmp_path, program, watchdog=watchdog, **keys)

    return start


def up(job: Job) -> None:
    """Wait until both ranks train."""
    for node in (0, 1):
        job.said(node, "trainer", "] up", seconds=START)
    job.listen()


def ended(job: Job, exit_code: int) -> Verdict:
    """The only verdict of a job that has failed with this exit code of the agent, as three have it."""
    assert "PodFailurePolicy" == job.ended(START)
    print(job.logs())
    found = job.verdict
    assert exit_code == job.bundle().exit_code
    if 0 in job.pods():  # a pod that has not ended by itself is deleted when the job has failed
        words = job.last_words(0, "trainer")
        assert (exit_code, [found.code]) == (words["exit"], [each["code"] for each in words["verdicts"]])
    return found


@pytest.mark.whole
@pytest.mark.fault("rank-in-dataloader")
def test_a_rank_waits_for_its_data(start: Start) -> None:
    """The loader's worker in the second pod reads for ever."""
    found = ended(start(NEVER, "batch(rank)"), Exit.HANG)

    assert ("rank-in-dataloader", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    assert "(program.py:" in found.sentence


@pytest.mark.whole
@pytest.mark.fault("collective-mismatch")
def test_ranks_call_different_collectives(start: Start) -> None:
    """In the second pod it is a broadcast."""
    step = "step == 20 and rank == 1 and dist.broadcast(torch.ones(1000), 0)"
    found = ended(start(step=step), Exit.HANG)

    assert "collective-mismatch" == found.code
    assert "broadcast" in found.sentence


@pytest.mark.fault("rank-killed-memory")
def test_a_rank_takes_more_memory_than_its_container_has(start: Start) -> None:
    """The kernel kills it: the rank and its node are named, with the container's limit."""
    job = start(GREEDY, "rank == 1 and step > 3 and eat()", resources={"memory": "900Mi"})
    found = ended(job, Exit.OUT_OF_MEMORY)

    assert ("rank-killed-memory", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    assert "rank 1 was killed for memory on node 1 (job-1): limit 900 MiB" in unplaced(found)


@pytest.mark.whole
@pytest.mark.fault("network-lost")
def test_a_whole_container_is_killed(faults: Faults, start: Start) -> None:
    """As where the kernel kills all of it for memory: its supervisor has gone without a word."""
    job = start()
    up(job)
    faults.run(job.machine(1), "pkill", "-KILL", "-f", "agent.pyz run")
    found = ended(job, Exit.NODE_AT_FAULT)

    assert ("network-lost", [1], [0]) == (found.code, found.nodes, found.victims)
    assert "node 1 (job-1) went away: its agent ended without a word" in unplaced(found)
    assert "OOMKilled" in found.hint


@pytest.mark.whole
@pytest.mark.fault("network-lost")
def test_a_pod_is_cut_off(
    cluster: Cluster, faults: Faults, start: Start, namespace: str, tmp_path: Path
) -> None:
    """All packets to and from one machine's pods: the node is named, though it lives.

    A webhook, the Job's Events and Prometheus' figures say so. The URL is in none of what others can read,
    and the token, with which the hub makes Events, is in no other container.
    """
    receiver = Receiver(cluster, namespace)
    receiver.allow()
    job = start(**KEYS)
    receiver.start(job.machine(0))
    up(job)
    faults.move_dns(away_from=job.machine(1))  # the webhook's name would be lost with it
    in_trainer = ["exec", "--namespace", namespace, job.pod(0), "--container=trainer", "--"]
    assert "" == cluster.kubectl(*in_trainer, "sh", "-c", f"ls {kubernetes.ACCOUNT} 2>/dev/null || true")
    figures = receiver.figures(job.address(0))
    faults.nft(job.machine(1), "drop")
    pods = json.dumps(list(job.pods().values()))
    found = ended(job, Exit.NODE_AT_FAULT)

    assert ("network-lost", [1], [0]) == (found.code, found.nodes, found.victims)
    assert unplaced(found).startswith("node 1 (job-1) stopped answering at ")
    # The hub may still send when the Job has failed: it has some seconds for it.
    cluster.until(
        lambda: len(receiver.got()) > 1 and len(receiver.events(job.name)) > 1,
        "all messages arrive",
        30,
        lambda: f"{receiver.got()}, {receiver.events(job.name)}",
    )
    got, shown = receiver.got(), receiver.events(job.name)
    assert ["notice", "end"] == [each["occasion"] for each in got]
    assert {(f"/{SECRET}", f"kubernetes://{namespace}/job")} == {
        (each["path"], each["handle"]) for each in got
    }
    assert [("Warning", "Notice"), ("Warning", "Ended")] == [each[:2] for each in shown]
    assert [each["text"] for each in got] == [each[2] for each in shown]
    assert "network-lost: node 1 (job-1 on " in got[0]["text"]
    assert 'ddplaunch_ranks{job_name="job"} 2\n' in figures
    described = cluster.kubectl("describe", "job", job.name, "--namespace", namespace)
    assert got[1]["text"] in described
    for text in (pods, described, str(job.bundle()), unpacked((tmp_path / "hub.log").read_text())):
        assert SECRET not in text


@pytest.mark.whole
@pytest.mark.fault("node-evicted")
def test_a_machine_is_drained(faults: Faults, start: Start) -> None:
    """The pod on it is told to stop, and the job ends with the word for that."""
    job = start()
    up(job)
    faults.cordon(job.machine(1))
    faults.drain(job.machine(1))

    assert "PodFailurePolicy" == job.ended()
    found = job.verdict
    assert ("node-evicted", [1], [0]) == (found.code, found.nodes, found.victims)
    assert "node 1 (job-1) was told to stop by SIGTERM, and the others were not" in unplaced(found)
    assert Exit.STOPPED == job.last_words(0, "trainer")["exit"]
    assert "kubectl get events" in found.hint
