"""Where a job wants to run, in the words of a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import STEPS, Job
from tests.cluster.slurm.settings import OTHER_KIND

GPUS = """
import os, sys, time
print("given GPU", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(float(sys.argv[1]))
"""


def test_a_node_is_the_jobs_alone_and_the_gpu_of_the_type_that_it_asks_for(
    cluster: Cluster, work: Path
) -> None:
    """The other type is device 0. Slurm knows the wait for one switch, and lets nobody else onto the node."""
    job = Job.submit(
        cluster,
        work,
        GPUS,
        nodes=1,
        command=["program.py", "600"],
        resources={"memory": "900Mi", "cpus": 1, "gpus": 1, "gpu_type": OTHER_KIND},
        gate={"skip": ["gpus"]},
        slurm={"nodelist": "n1", "exclusive": True, "switches": "1@2:00", "nice": 7},
    )
    job.said("given GPU 1")
    shown = cluster.login(["scontrol", "show", "job", str(job.number)]).stdout.split()
    other = cluster.submit("#!/bin/bash\nsleep 60\n", "--nodelist=n1", "--mem=100")
    cluster.until(lambda: "Resources" in reason(cluster, other), "it waits", 20)

    assert {"Switches=1@00:02:00", "Nice=7"} <= set(shown)
    # Slurm 22.05 writes the first, 24.11 the second.
    assert {f"TresPerNode=gres{sign}gpu:{OTHER_KIND}:1" for sign in ":/"} & set(shown)
    cluster.login(["scancel", str(job.number)])
    cluster.running(other)


@pytest.mark.whole
def test_a_job_that_shares_its_node_does_so(cluster: Cluster, work: Path) -> None:
    """By default there is room for others."""
    job = Job.submit(
        cluster,
        work,
        STEPS,
        nodes=1,
        command=["program.py", "3000"],
        resources={"memory": "900Mi", "cpus": 1},
        slurm={"nodelist": "n1"},
    )
    cluster.running(job.number)
    cluster.running(cluster.submit("#!/bin/bash\nsleep 60\n", "--nodelist=n1", "--mem=100"))


def reason(cluster: Cluster, job: int) -> str:
    """Why it does not run, in Slurm's words."""
    return cluster.login(["squeue", "--noheader", "--format=%r", f"--jobs={job}"]).stdout
