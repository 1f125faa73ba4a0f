"""Nodes of Slurm whose hardware or limits are not what a job needs; following each hint, it starts."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.checks.nvidia import A100_MIXED, H200_FREE, install
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog
from tests.cluster.slurm.gate_jobs import FIXED, Start, mended, verdict
from tests.cluster.slurm.gpu_jobs import WITH_GPU

ORDINARY = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
"""What users lack: CAP_IPC_LOCK lifts the limit, and jobs here are root's."""
UNLIMITED = ["prlimit", "--memlock=unlimited"]
StartDaemons = Callable[[list[str]], None]


@pytest.fixture(name="start_daemons")
def _start_daemons(cluster: Cluster) -> Iterator[StartDaemons]:
    """A function that starts each node's slurmd anew behind these words."""

    def start(words: list[str]) -> None:
        for node in cluster.nodes:
            cluster.kill_slurmd(node)
            cluster.run(node, [*words, "slurmd", "-N", node])
        cluster.idle()

    yield start
    for node in cluster.nodes:
        cluster.kill_slurmd(node)


@pytest.fixture(name="shell_limit")
def _shell_limit() -> Iterator[None]:
    """This process, the shell that submits, may lock 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))


@pytest.fixture(name="gpus")
def _gpus(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """A function that gives every node a GPU, as far as a look into /dev can tell."""
    given = []

    def give() -> None:
        for node in cluster.nodes:
            cluster.run(node, ["sh", "-ec", WITH_GPU])
            given.append(node)

    yield give
    for node in given:
        cluster.run(node, ["umount", "--lazy", "/dev"])


@pytest.mark.whole
@pytest.mark.fault("memlock-too-small")
@pytest.mark.usefixtures("shell_limit")
def test_the_submitting_shell_may_lock_too_little(
    cluster: Cluster, start: Start, start_daemons: StartDaemons
) -> None:
    """Slurm carries its limit to the nodes. There are no RDMA devices here, so that they are not looked for.

    Where not even root may raise a limit, slurmd gets its capability back instead.
    """
    start_daemons(ORDINARY)
    asks = {"resources": {"rdma": 1}, "gate": {**FIXED["gate"], "skip": ["rdma"]}}

    code, nodes, found = verdict(start(**asks))
    assert ("memlock-too-small", [0, 1, 2]) == (code, nodes)
    assert "nodes 0 (n1), 1 (n2) and 2 (n3): a rank may lock 64 KiB of memory" in found.sentence
    assert (
        "`PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf and `LimitMEMLOCK=infinity` in" in found.hint
    )
    may = 0 == subprocess.run([*UNLIMITED, "true"], capture_output=True, check=False).returncode
    start_daemons([*UNLIMITED, *ORDINARY] if may else ["env"])
    cluster.configure("PropagateResourceLimitsExcept=MEMLOCK")
    mended(start, **asks)


@pytest.mark.whole
@pytest.mark.fault("gpu-missing")
def test_slurm_counts_gpus_that_are_not_there(start: Start, gpus: Callable[[], None]) -> None:
    """Until the driver is loaded, gres.conf names files of nothing."""
    asks = {"resources": {"gpus": 1}}

    code, nodes, found = verdict(start(**asks))
    assert ("gpu-missing", [0, 1, 2]) == (code, nodes)
    assert "no device of a GPU is here; wanted: 1" in found.sentence
    gpus()
    mended(start, **asks)


@pytest.mark.whole
@pytest.mark.fault("hardware-differs")
def test_another_kind_of_gpu_on_one_node(
    start: Start, task_prolog: TaskProlog, work: Path, gpus: Callable[[], None]
) -> None:
    """nvidia-smi is a fake that says what real ones have said, on one node what another has said."""
    gpus()
    ours, other = install(work / "h200", H200_FREE), install(work / "a100", A100_MIXED)
    choose = f'[ "$SLURMD_NODENAME" = n3 ] && smi={other} || smi={ours}'
    task_prolog(f'{choose}\necho "export PATH=$smi:/usr/sbin:/sbin"')
    asks = {"resources": {"gpus": 1}}

    code, nodes, found = verdict(start(**asks))
    assert ("hardware-differs", [2]) == (code, nodes)
    assert "node 2 (n3) has NVIDIA A100 80GB PCIe, the others NVIDIA H200" == found.sentence
    assert "if the difference is intended, `gate: {skip: [gpus]}`" in found.hint
    mended(start, **asks, gate={**FIXED["gate"], "skip": ["gpus"]})
