"""MPI on a real cluster: ranks that mpirun or srun starts on all nodes, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/mpi/train.py"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
IN_TURNS = {"OMPI_MCA_mpi_yield_when_idle": "1"}
"""Six ranks that wait would burn the two cores on which other tests run beside them."""
MPIRUN: dict[str, Any] = {}
SRUN: dict[str, Any] = {"slurm": {"mpi": "pmix"}}
BY_MPIRUN, BY_SRUN = pytest.param(MPIRUN, id="mpirun"), pytest.param(SRUN, id="srun")
MPIRUN_BY_DAY = pytest.mark.parametrize(
    "launcher", [BY_MPIRUN, pytest.param(SRUN, id="srun", marks=pytest.mark.whole)]
)
SRUN_BY_DAY = pytest.mark.parametrize(
    "launcher", [pytest.param(MPIRUN, id="mpirun", marks=pytest.mark.whole), BY_SRUN]
)
HEAD = """
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
print("up", flush=True)
data = bytearray(8)
"""


def submit(cluster: Cluster, work: Path, program: str, launcher: dict[str, Any], **keys: Any) -> Job:
    """Two ranks on each of three nodes, as root."""
    if launcher == SRUN:
        listed = cluster.login(["srun", "--mpi=list"])
        if "pmix" not in listed.stdout + listed.stderr:
            # Debian's 26.05 has no such plugin, so srun cannot start ranks of MPI there; mpirun still does.
            pytest.skip("this Slurm was built without PMIx")
    env = {**AS_ROOT, **IN_TURNS}
    values = {"nodes": 3, "nproc_per_node": 2, "launch": "mpi", "env": env, **launcher, **keys}
    return Job.submit(
        cluster, work, program, **{"watchdog": {"notice_after": "5s", "kill_after": "12s"}, **values}
    )


def lines(job: Job, prefix: str) -> list[str]:
    """What that rank, or whoever writes under this prefix, has printed."""
    head = f"[{prefix}] "
    return [line[len(head) :] for line in job.output.splitlines() if line.startswith(head)]


@SRUN_BY_DAY
@pytest.mark.whole
def test_the_example_trains_on_two_nodes(cluster: Cluster, work: Path, launcher: dict[str, Any]) -> None:
    """torch tensors through mpi4py; a rank's output is shown as its node's, the launcher says nothing."""
    command = ["program.py", "--steps", "100", "--require", "0.8"]
    job = submit(cluster, work, EXAMPLE.read_text(), launcher, command=command, nodes=2)

    assert "COMPLETED" == job.ended(180), job.output
    assert "of 4 ranks" in lines(job, "0/0")[-1]
    assert [] == lines(job, "0/launch")
    assert (0, []) == (job.bundle().exit_code, job.bundle().verdicts)
    job.leaves_nothing()


@MPIRUN_BY_DAY
def test_every_rank_is_at_home_on_its_node(cluster: Cluster, work: Path, launcher: dict[str, Any]) -> None:
    """Ranks in the order of the nodes, each with a supervisor of its own node."""
    program = HEAD + "print(os.uname().nodename, comm.rank, os.environ['LOCAL_RANK'], flush=True)"
    job = submit(cluster, work, program, launcher)

    assert "COMPLETED" == job.ended(), job.output
    for rank in range(6):
        assert f"n{rank // 2 + 1} {rank} {rank % 2}" == lines(job, f"{rank // 2}/{rank}")[-1]
    job.leaves_nothing()


def test_no_rank_passes_srun_s_fence_before_all_have_come(cluster: Cluster, work: Path) -> None:
    """Open MPI's MPI_Init ends with one, without data. Who passes it sends, and a rank not ready crashes."""
    program = """
import ctypes, time
pmix = ctypes.CDLL("libpmix.so.2")
own = ctypes.create_string_buffer(260)  # pmix_proc_t: 256 characters of a name, and the rank
assert pmix.PMIx_Init(own, None, 0) == 0
late = int.from_bytes(own[256:], "little") == 5
time.sleep(1.5 * late)
came = time.time()
assert pmix.PMIx_Fence(None, 0, None, 0) == 0
print("came" if late else "passed", came if late else time.time(), flush=True)
pmix.PMIx_Finalize(None, 0)
"""
    job = submit(cluster, work, program, SRUN)

    assert "COMPLETED" == job.ended(), job.output
    said = [lines(job, f"{rank // 2}/{rank}")[-1].split() for rank in range(6)]
    assert ["passed"] * 5 + ["came"] == [word for word, _ in said]
    assert float(said[5][1]) < min(float(moment) for _, moment in said[:5])
    job.leaves_nothing()


@pytest.mark.whole
@pytest.mark.fault("mpi-unmatched")
@SRUN_BY_DAY
def test_a_message_between_nodes_that_is_not_received(
    cluster: Cluster, work: Path, launcher: dict[str, Any]
) -> None:
    """Rank 5 on n3 sends with another tag than rank 0 on n1 waits for."""
    program = HEAD + (
        "data = bytearray(1 << 22)\n"
        "if comm.rank == 0:\n    comm.Recv(data, source=5, tag=1)\n"
        "if comm.rank == 5:\n    comm.Send(data, dest=0, tag=2)\n"
        "comm.Barrier()\n"
    )
    job = submit(cluster, work, program, launcher)

    assert "FAILED" == job.ended(), job.output
    assert ("mpi-unmatched", [0, 5], [0, 2]) == (job.verdict.code, job.verdict.ranks, job.verdict.nodes)
    assert job.verdict.sentence.endswith("the tags differ, 2 is sent and 1 is received")
    job.leaves_nothing()


@pytest.mark.fault("mpi-rank-lost")
@MPIRUN_BY_DAY
@pytest.mark.whole
def test_a_rank_that_does_not_come_to_mpi(cluster: Cluster, work: Path, launcher: dict[str, Any]) -> None:
    """All others stand in the import of mpi4py."""
    program = (
        "import os\nos.mkfifo('/tmp/shard') if os.environ['RANK'] == '3' else None\n"
        "def load():\n    open('/tmp/shard').close()\n"
        "if os.environ['RANK'] == '3': load()\n" + HEAD
    )
    job = submit(cluster, work, program, launcher)

    assert "FAILED" == job.ended(), job.output
    assert ("mpi-rank-lost", [3], [1]) == (job.verdict.code, job.verdict.ranks, job.verdict.nodes)
    assert "rank 3 never reached MPI_Init; rank 3 is in load (program.py:4)" == job.verdict.sentence
    cluster.path("n2", "/tmp/shard").unlink()
    job.leaves_nothing()


@pytest.mark.whole
@pytest.mark.fault("rank-killed")
@SRUN_BY_DAY
def test_a_rank_that_is_killed_on_another_node(
    cluster: Cluster, work: Path, launcher: dict[str, Any]
) -> None:
    """The launcher on n1 ends all others over it; they are victims, on every node."""
    program = HEAD + (
        "for step in range(1000):\n    comm.Barrier()\n    time.sleep(0.1)\n"
        "    if comm.rank == 4 and step == 10:\n        os.kill(os.getpid(), 11)\n"
    )
    job = submit(cluster, work, program, launcher)

    assert "FAILED" == job.ended(), job.output
    assert ("rank-killed", [4], [2], [0, 1, 2, 3, 5]) == (
        job.verdict.code,
        job.verdict.ranks,
        job.verdict.nodes,
        job.verdict.victims,
    )
    job.leaves_nothing()


@pytest.mark.whole
@MPIRUN_BY_DAY
def test_scancel_ends_the_ranks_of_all_nodes(cluster: Cluster, work: Path, launcher: dict[str, Any]) -> None:
    """None is left, wherever its launcher was."""
    job = submit(cluster, work, HEAD + "comm.recv(source=0)", launcher)
    job.said("] up", 6)
    cluster.login(["scancel", str(job.number)])

    assert ("CANCELLED", "60:0") == (job.ended(), job.exit_code)
    job.leaves_nothing()
