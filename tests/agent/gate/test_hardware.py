"""Hardware that stands against a job. Devices are those of recorded machines; gates and limits are real."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.checks.infiniband import HALF_DOWN, HOST_GIDS, POD_GIDS, ROCE, sysfs
from tests.agent.checks.nvidia import A100_MIXED, H200_BUSY, H200_HELD, install
from tests.agent.gate.clusters import Cluster, Make
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Job

MakeTrial = Callable[..., Cluster]
GPU = {"CUDA_VISIBLE_DEVICES": "2"}
"""Of the recorded machine; Slurm sets it."""
RAISED = ["prlimit", "--memlock=unlimited"]
LIMITED = ["prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]


@pytest.fixture(name="trial")
def _trial(network: Make, tmp_path: Path, agent: list[str]) -> Iterator[MakeTrial]:
    """A function that makes a job on two hosts, the same hosts each time, with these devices on each."""
    hosts: list[Host] = []
    made: list[Job] = []

    def make(*devices: tuple[str, str], **changes: Any) -> Cluster:
        hosts.extend([] if hosts else network(2))
        folder = tmp_path / f"try-{len(made)}"
        for number, (host, shown) in enumerate(zip(hosts, devices)):
            host.environment["RDMA"] = sysfs(folder / f"root-{number}", *shown) if shown[0] else ""
        folder.mkdir(exist_ok=True)
        for job in made:
            job.close()
        made.append(Job(folder, agent))
        return Cluster(made[-1], hosts, **changes)

    yield make
    for job in made:
        job.close()


NONE, HOST, POD, HALF = ("", ""), (ROCE, HOST_GIDS), (ROCE, POD_GIDS), (HALF_DOWN, "")


@pytest.mark.fault("memlock-too-small")
def test_a_node_on_which_too_little_memory_may_be_locked_is_named(trial: MakeTrial) -> None:
    """As for a user whose shell has the common default. Following the hint, the job starts.

    Where not even root may raise a limit, the node's own is lifted by its capability instead.
    """
    first = trial(HOST, HOST, resources={"rdma": 2})
    first.hosts[1].limits = LIMITED

    assert ("memlock-too-small", [1]) == first.verdict()
    said = "node 1 (n1): a rank may lock 64 KiB of memory, which RDMA cannot work with; wanted: unlimited"
    assert said == first.job.verdict.sentence

    assert "`ulimit -l unlimited` where the job is started" in first.job.verdict.hint
    may = 0 == subprocess.run([*RAISED, "true"], capture_output=True, check=False).returncode
    first.hosts[1].limits = [*RAISED, *LIMITED[2:]] if may else []
    trial(HOST, HOST, resources={"rdma": 2}).starts()


@pytest.mark.fault("gpu-missing")
def test_a_node_without_the_rdma_devices_asked_for_is_named(trial: MakeTrial) -> None:
    first = trial(HOST, NONE, resources={"rdma": 2})

    assert ("gpu-missing", [1]) == first.verdict()
    assert "node 1 (n1): no RDMA device is here; wanted: RDMA devices: 2" == first.job.verdict.sentence
    assert "A container must be given /dev/infiniband, too" in first.job.verdict.hint
    trial(HOST, HOST, resources={"rdma": 2}).starts()


@pytest.mark.fault("rdma-unfit")
def test_a_node_on_which_the_gid_index_is_empty_is_named(trial: MakeTrial) -> None:
    wanted = {"resources": {"rdma": 2}}
    first = trial(HOST, POD, env={"NCCL_IB_GID_INDEX": "3"}, **wanted)

    assert ("rdma-unfit", [1]) == first.verdict()
    assert "NCCL_IB_GID_INDEX=3 is empty on mlx5_0 port 1 and mlx5_1 port 1" in first.job.verdict.sentence
    assert "leave NCCL_IB_GID_INDEX out" in first.job.verdict.hint
    trial(HOST, POD, **wanted).starts()


def with_gpus(trial: Cluster, folder: Path, *shown: str) -> Cluster:
    """Each host has GPUs, of which nvidia-smi, a fake, says what was recorded on a real machine."""
    for host, text in zip(trial.hosts, shown):
        host.environment["GPU"] = "nvidia0"
        host.limits = ["env", f"PATH={install(folder / host.name, text)}:/usr/sbin:/sbin"]
    return trial


@pytest.mark.fault("gpu-held")
def test_a_gpu_that_another_process_holds_is_named_with_it(trial: MakeTrial, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"resources": {"gpus": 1}, "nproc_per_node": 1, "env": GPU}
    first = with_gpus(trial(**asked), tmp_path, H200_BUSY, H200_HELD)

    assert ("gpu-held", [1]) == first.verdict()
    said = (
        "node 1 (n1): GPU 2 has 103.4 GiB of 140.4 GiB held by pid 1425258 (python3); wanted: GPUs of its own"
    )
    assert said == first.job.verdict.sentence
    assert first.job.verdict.hint.startswith("end that process")
    with_gpus(trial(**asked), tmp_path, H200_BUSY, H200_BUSY).starts()


def test_a_gpu_that_is_given_back_soon_is_waited_for(trial: MakeTrial, tmp_path: Path) -> None:
    """The driver takes a moment to clear up behind a process that has ended: it is looked at again."""
    asked: dict[str, Any] = {"resources": {"gpus": 1}, "nproc_per_node": 1, "env": GPU}
    first = with_gpus(trial(**asked), tmp_path, H200_BUSY, H200_HELD)
    first.start(1)
    first.gates[1].says("GPU 2 has")
    install(tmp_path / "n1", H200_BUSY)
    first.gates[1].says("now passing, after")
    first.start(0)

    first.starts()


@pytest.mark.fault("hardware-differs")
def test_another_kind_of_gpu_on_one_node_is_a_verdict(trial: MakeTrial, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"resources": {"gpus": 1}, "nproc_per_node": 1}
    first = with_gpus(trial(**asked, env=GPU), tmp_path, H200_BUSY, A100_MIXED.replace("4, NV", "2, NV"))

    assert ("hardware-differs", [1]) == first.verdict()
    assert "node 1 (n1) has NVIDIA A100-SXM4-80GB, node 0 (n0) NVIDIA H200" == first.job.verdict.sentence
    assert "if the difference is intended, `gate: {skip: [gpus]}`" in first.job.verdict.hint
    trial(**asked, env=GPU, gate={"skip": ["gpus"]}).starts()
