"""What ranks write below their working directory is there when the job has ended, however it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

WRITES = """
import os, pathlib, sys, time
rank = int(os.environ["RANK"])
pathlib.Path("out").mkdir(exist_ok=True)
data = bytes(range(256)) * 400 * (rank + 1)
with open(f"out/model {rank}.pt", "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
print("up", flush=True)
for step in range(int(sys.argv[1])):
    time.sleep(0.2)
    print("step", step, flush=True)
"""


def written(rank: int) -> bytes:
    """Return what a rank writes."""
    return bytes(range(256)) * 400 * (rank + 1)


def test_without_source_ranks_stand_beside_the_job_file(cluster: Cluster, work: Path) -> None:
    """As they do under sbatch; the job file may lie elsewhere than where you submit it."""
    job = Job.submit(cluster, work, WRITES, command=["program.py", "3"], source=[])

    assert job.ended() == "COMPLETED", job.output
    found = {path.name: path.read_bytes() for path in (work / "out").iterdir()}
    assert {"model 0.pt": written(0), "model 1.pt": written(1)} == found


@pytest.mark.parametrize("end", [pytest.param("by itself", marks=pytest.mark.whole), "scancel", "kill -9"])
def test_what_a_node_wrote_that_shares_no_folder_is_brought(cluster: Cluster, apart: Path, end: str) -> None:
    """It is in /tmp there until it has come; then nothing is left."""
    job = Job.submit(cluster, apart, WRITES, command=["program.py", "3" if end == "by itself" else "500"])
    if end != "by itself":
        job.up()
    if end == "scancel":
        cluster.login(["scancel", str(job.number)], cwd=apart)
    if end == "kill -9":
        job.kill_supervisor("n2")
    job.ended()

    assert written(0) == (job.folder / "work/out/model 0.pt").read_bytes()
    assert written(1) == (job.folder / "outputs/node-1/out/model 1.pt").read_bytes(), job.output
    said = (
        "files that the ranks of n2 wrote are in"
        if end == "scancel"
        else "n2: copying files that its ranks wrote from /tmp"
    )
    assert said in job.output
    job.leaves_nothing()


@pytest.mark.whole
def test_what_cannot_be_brought_stays_and_is_named(cluster: Cluster, apart: Path) -> None:
    """Here, since the job's folder takes no more."""
    job = Job.submit(cluster, apart, WRITES, command=["program.py", "20"])
    job.up()
    (job.folder / "outputs").write_text("in the way")
    job.ended()

    words = "not all files that n2 wrote were copied: the rest is still there, in "
    said = job.output.partition(words)[2].split()[0]
    assert written(1) == cluster.path("n2", said).joinpath("out/model 1.pt").read_bytes()
    cluster.run("n2", ["rm", "-r", str(Path(said).parent)])
