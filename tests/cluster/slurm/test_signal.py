"""The job file's `signal`: ranks get it before the time limit, write a checkpoint, and the job goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

TRAIN = """
import os, signal, sys, time
from itertools import count
from pathlib import Path
import torch
import torch.distributed as dist

got = 0
def handle(number, frame):
    global got
    got += 1
signal.signal(signal.SIGUSR1, handle)
dist.init_process_group("gloo")
rank, after = dist.get_rank(), sys.argv[1]
checkpoint = Path(os.environ["DDPLAUNCH_RESUME_DIR"]) / "step"
begin = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("up at step", begin, flush=True)
for step in range(begin + 10) if begin else count():
    time.sleep(0.1)
    asked = torch.tensor([got])
    dist.all_reduce(asked)
    if asked and not checkpoint.exists():
        dist.barrier()
        if rank == 0:
            checkpoint.write_text(str(step + 1))
        time.sleep(3)
        print("got", got, "before step", step + 1, flush=True)
        dist.barrier()
        if after.isdecimal():
            time.sleep(1)
            sys.exit(int(after))
print("done", flush=True)
time.sleep(1)
"""
"""It writes a checkpoint at the signal, and ends with the exit code that its argument is, if that is one.

A rank that ends at once may reset a connection from which another still reads its last collective.
"""


def submit(cluster: Cluster, work: Path, after: str, **keys: Any) -> Job:
    """A training on two nodes, whose limit is two minutes: torch takes a while to import."""
    values = {
        "nproc_per_node": 2,
        "command": ["program.py", after],
        "resources": {"memory": "1800Mi"},
        "signal": {"name": "USR1", "before": "50s"},
        "retries": 1,
        "slurm": {"time": "2m"},
        **keys,
    }
    return Job.submit(cluster, work, TRAIN, **values)


def goes_on_from_its_checkpoint(job: Job) -> None:
    """Each of the four ranks got the signal once, and the second attempt begins where the first one ended."""
    first, _, second = job.output.partition("retry 1 of 1")
    (step,) = set(re.findall(r"got 1 before step (\d+)", first))
    assert (4, 4) == (first.count("] got "), first.count(f"] got 1 before step {step}")), job.output
    assert (4, 4) == (second.count(f"] up at step {step}"), second.count("] done")), job.output


@pytest.mark.whole
@pytest.mark.parametrize("after", ["0", "3"])
def test_a_training_that_ends_after_the_signal_comes_back(cluster: Cluster, work: Path, after: str) -> None:
    """Whatever the exit code of its handler: Slurm requeues it, and it finds its checkpoint."""
    job = submit(cluster, work, after)
    job.said("sent USR1 to 4 ranks: 50 s before the time limit", seconds=150)
    job.said("the ranks had SIGUSR1 50 s before the time limit: retry 1 of 1", seconds=60)
    job.comes_back()

    assert ("COMPLETED", "0:0") == (job.ended(200), job.exit_code), job.output
    goes_on_from_its_checkpoint(job)
    assert after == "0" or "before that, SIGUSR1 came to" in " ".join(job.output.split()), job.output
    job.leaves_nothing()


@pytest.mark.whole
def test_a_training_that_reaches_its_limit_after_the_signal_comes_back(cluster: Cluster, work: Path) -> None:
    """It goes on after its checkpoint, until Slurm ends it."""
    job = submit(cluster, work, "on")
    job.said("sent USR1 to 4 ranks: 50 s before the time limit", seconds=150)
    job.said("the ranks had SIGUSR1 50 s before the time limit: retry 1 of 1", seconds=150)
    job.comes_back()

    assert ("COMPLETED", "0:0") == (job.ended(200), job.exit_code), job.output
    goes_on_from_its_checkpoint(job)


def test_scancel_gives_it_to_the_ranks(cluster: Cluster, work: Path) -> None:
    """torchrun has no handler for it and would die; and what a user sends makes no other attempt follow."""
    job = submit(cluster, work, "0", slurm={})
    job.said("] up at", 4, seconds=60)
    cluster.login(["scancel", "--signal=USR1", str(job.number)])

    assert ("COMPLETED", "0:0") == (job.ended(90), job.exit_code), job.output
    assert 4 == job.output.count("] got 1 before step"), job.output
    assert "retry 1 of" not in job.output  # srun may be "retrying" while its nodes are busy
