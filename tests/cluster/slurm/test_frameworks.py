"""Launchers of frameworks on two nodes: the job files of docs/how-to/frameworks.md, read out of the page."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import deepspeed_build
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

pytestmark = pytest.mark.timeout(600)
"""Four ranks import torch and a framework, on two cores that others may share."""
PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/frameworks.md").read_text("utf-8")
PROGRAMS = Path(__file__).with_name("programs")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ON_CPU = {"ACCELERATE_USE_CPU": "true"}
"""Without it accelerate looks for GPUs: the page says so."""
BUILT = [pytest.mark.whole, pytest.mark.timeout(deepspeed_build.PATIENCE)]
FRAMEWORKS = pytest.mark.parametrize(
    ("heading", "program"),
    [
        pytest.param("accelerate launch", "accelerate_loop", id="accelerate"),
        pytest.param("Lightning", "fabric_loop", id="lightning", marks=pytest.mark.whole),
        pytest.param("Hugging Face's Trainer", "trainer_loop", id="trainer", marks=pytest.mark.whole),
        pytest.param("DeepSpeed", "deepspeed_loop", id="deepspeed", marks=BUILT),
        pytest.param("deepspeed --no_ssh", "deepspeed_loop", id="deepspeed-launcher", marks=BUILT),
        pytest.param("mp.spawn", "spawn_loop", id="spawn", marks=pytest.mark.whole),
    ],
)


def job_file(heading: str) -> dict[str, Any]:
    """Return the job file below that heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    values: dict[str, Any] = yaml.safe_load(block)
    return values


def submit(cluster: Cluster, work: Path, heading: str, program: str, **env: str) -> Job:
    """The page's job with that program, and what this cluster asks of every job."""
    shutil.copy(PROGRAMS / f"{program}.py", work / "train.py")
    installed = deepspeed_build.environment() if program == "deepspeed_loop" else {}
    return Job.submit(
        cluster,
        work,
        "",
        **job_file(heading),
        env={"PATH": PATH, **ON_CPU, **installed, **env},
        resources={"memory": "3Gi"},
        watchdog={"notice_after": "6s", "kill_after": "20s"},
    )


@pytest.mark.whole
@FRAMEWORKS
def test_the_pages_job_trains(cluster: Cluster, work: Path, heading: str, program: str) -> None:
    """Four ranks on two nodes, all of them in the world that the framework has made."""
    job = submit(cluster, work, heading, program)

    assert "COMPLETED" == job.ended(240), job.output
    assert ["0", "1", "2", "3"] == sorted(re.findall(r"rank (\d) of 4 has trained", job.output)), job.output
    assert (0, []) == (job.bundle().exit_code, job.bundle().verdicts)
    job.leaves_nothing()


@pytest.mark.whole
@pytest.mark.fault("rank-in-user-code")
@FRAMEWORKS
def test_the_rank_that_does_not_come_is_named(
    cluster: Cluster, work: Path, heading: str, program: str
) -> None:
    """Rank 2 waits for its storage, and all others for it."""
    job = submit(cluster, work, heading, program, STUCK="2")

    assert "FAILED" == job.ended(240), job.output
    verdict = job.verdict
    assert ("rank-in-user-code", [2], [1], [0, 1, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    ), verdict
    assert re.search(r"load_shard \(train.py:\d+\) .* wait in .*\(train.py:\d+\)", verdict.sentence)
    job.leaves_nothing()


@pytest.mark.whole
def test_lightning_takes_its_ranks_from_slurm(cluster: Cluster, work: Path) -> None:
    """Each rank is a task, by Slurm's own variables, and has what torchrun would have set."""
    job = submit(cluster, work, "Lightning", "fabric_loop")

    assert "COMPLETED" == job.ended(240), job.output
    assert 4 == job.output.count("has trained by SLURMEnvironment"), job.output


SHOWS = """
import os
tasks = ("PROCID", "LOCALID", "NTASKS", "NTASKS_PER_NODE", "NODEID")
slurm = [os.environ[f"SLURM_{name}"] for name in tasks]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
port = os.environ["MASTER_PORT"].isdecimal()
print("task", *slurm, *(os.environ[name] for name in names), port, flush=True)
"""


def test_every_rank_is_a_task_of_slurm(cluster: Cluster, work: Path) -> None:
    """With Slurm's variables and torchrun's, which say the same."""
    job = Job.submit(cluster, work, SHOWS, launch="srun", nproc_per_node=2)

    assert "COMPLETED" == job.ended(), job.output
    shown = sorted(re.findall(r"\[(\d/\d)\] task (.*)", job.output))
    wanted = [
        (f"{n // 2}/{n}", f"{n} {n % 2} 4 2 {n // 2} {n} {n % 2} 4 2 10.99.0.11 True") for n in range(4)
    ]
    assert wanted == shown, job.output
    job.leaves_nothing()


@pytest.mark.whole
def test_a_command_that_is_the_launcher_knows_its_node(cluster: Cluster, work: Path) -> None:
    """The words of the job file, once on each node."""
    shows = "echo node $NODE_RANK of $MASTER_ADDR, ${MASTER_PORT:+a port}, ${WORLD_SIZE:-no size}"
    command = ["sh", "-c", shows]
    job = Job.submit(cluster, work, "", launch="none", nproc_per_node=2, command=command)

    assert "COMPLETED" == job.ended(), job.output
    said = sorted(re.findall(r"node (\d of .*)", job.output))
    assert [f"{n} of 10.99.0.11, a port, no size" for n in range(2)] == said, job.output
    job.leaves_nothing()
