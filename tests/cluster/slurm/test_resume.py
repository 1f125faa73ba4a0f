"""examples/digits comes back: preempted, or without a node, it goes on from its checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

DIGITS = (Path(__file__).parents[3] / "examples" / "digits" / "train.py").read_text()
EPOCHS = 40


def submitted(cluster: Cluster, work: Path) -> Job:
    """The training on two nodes, once its checkpoint of the second epoch is written."""
    job = Job.submit(
        cluster,
        work,
        DIGITS,
        command=["program.py", "--epochs", str(EPOCHS), "--batch-size", "16", "--require", "0.9"],
        retries=1,
        resume={"args": ["--resume"]},
        resources={"memory": "2Gi"},
    )
    job.said("] epoch  3 ", seconds=200)
    return job


def loses_an_epoch_at_most(job: Job) -> None:
    """The last attempt goes on behind the last epoch that was written down, and comes to the end."""
    before, resumed, after = job.output.partition("resumed after epoch ")
    done = int(re.match(r"\d+", after)[0]) if resumed else 0  # type: ignore[index]

    first, last = (list(map(int, re.findall(r"\[0/0\] epoch +(\d+) ", text))) for text in (before, after))
    assert list(range(1, first[-1] + 1)) == first
    assert list(range(done + 1, EPOCHS + 1)) == last
    assert done in (first[-1] - 1, first[-1])


@pytest.mark.whole
def test_a_preempted_training_loses_what_it_did_since_its_checkpoint(cluster: Cluster, work: Path) -> None:
    """Slurm requeues it for a job of a partition that goes before; its folder and its checkpoint stay."""
    cluster.configure(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=urgent Nodes=ALL PriorityTier=9",
    )
    cluster.restart_controller()
    job = submitted(cluster, work)
    cluster.submit("#!/bin/bash\ntrue\n", "--nodes=3", "--exclusive", "--partition=urgent", cwd=work)
    job.comes_back()

    assert ("COMPLETED", "0:0") == (job.ended(250), job.exit_code), job.output
    assert [60, 0] == [job.bundle("run-0").exit_code, job.bundle().exit_code]
    loses_an_epoch_at_most(job)
    job.leaves_nothing()


@pytest.mark.whole
def test_a_training_that_loses_a_node_goes_on_without_it(cluster: Cluster, work: Path) -> None:
    """The machine goes away in mid-run; the next attempt is on the other two."""
    job = submitted(cluster, work)
    cluster.nft("n2", "drop")
    job.said("a node is at fault: retry 1 of 1, without n2", seconds=200)
    job.comes_back()

    assert ("COMPLETED", "0:0") == (job.ended(250), job.exit_code), job.output
    assert ["network-lost"] == [verdict.code for verdict in job.bundle("run-0").verdicts]
    loses_an_epoch_at_most(job)
