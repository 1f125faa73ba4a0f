"""Each layout of a training runs on two nodes as it lies; what it wrote is there, however the job ended."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job
from tests.layouts.table import LAYOUTS, Layout, read, wrong

from ddplaunch.backends import outputs

HERE = [each for each in LAYOUTS if "slurm" in each.on]
EVERY_DAY = "a link to the last checkpoint"
DAILY = [
    pytest.param(each, id=each.name, marks=[] if each.name == EVERY_DAY else [pytest.mark.whole])
    for each in HERE
]
CUT_OFF = ("scancel", "kill -9 of the agent") * 2 + ("time limit",)
"""Each layout is cut off in one of these ways; a minute is Slurm's shortest time limit."""


def submitted(cluster: Cluster, work: Path, layout: Layout, *options: str, **env: str) -> tuple[Job, float]:
    """The job of a layout, on two nodes, and when it was submitted."""
    keys: dict[str, Any] = {"nodes": 2, "python": sys.executable, "resources": {"memory": "900Mi"}}
    keys["env"] = {**layout.keys.get("env", {}), **env}
    file = layout.lay(work / "code", **keys)
    time.sleep(3)  # what was written less than two seconds before may be the job's, as clocks differ
    since = time.time()
    return Job.of_file(cluster, work, file, *options), since


def found(job: Job, since: float) -> dict[str, bytes | str]:
    """What `ddplaunch outputs` lists, of whichever node."""
    each_found: dict[str, bytes | str] = {}
    for each in outputs.of_job(job.folder, since):
        whole = read(each.folder)
        each_found.update({file.path: whole[file.path] for file in each.files})
    return each_found


@pytest.mark.parametrize("layout", DAILY)
def test_what_a_layout_writes_lies_in_the_jobs_folder(cluster: Cluster, work: Path, layout: Layout) -> None:
    """Both nodes see it."""
    job, since = submitted(cluster, work, layout)

    assert job.ended() == "COMPLETED", job.output
    assert [] == wrong(layout, found(job, since))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("layout", "end"),
    [(each, CUT_OFF[number % 5]) for number, each in enumerate(HERE) if "source" in each.keys],
    ids=str,
)
def test_what_a_layout_writes_is_brought_when_it_is_cut_off(
    cluster: Cluster, apart: Path, layout: Layout, end: str
) -> None:
    """From a node that shares no folder."""
    limit = ["--time=1"] if end == "time limit" else []
    job, since = submitted(cluster, apart, layout, *limit, STANDS="1", WRITER="1")
    job.up()
    if end == "scancel":
        cluster.login(["scancel", str(job.number)], cwd=apart)
    if end == "kill -9 of the agent":
        job.kill_supervisor("n2")
    job.ended(180)

    assert [] == wrong(layout, found(job, since)), job.output
    job.leaves_nothing()
