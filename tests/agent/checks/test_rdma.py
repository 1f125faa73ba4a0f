"""RDMA devices of recorded machines, and the memory that may be locked of this very process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.checks.infiniband import EFA, HALF_DOWN, HOST_GIDS, POD_GIDS, ROCE, sysfs
from tests.agent.checks.make import make_context

from ddplaunch.agent.checks import machine, rdma
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import CheckResult, Status
from ddplaunch.agent.system import processes

LIMITED = """
import resource, sys
from tests.agent.checks.make import make_context
from ddplaunch.agent.checks import machine
from pathlib import Path
soft, hard, asked = map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
context = make_context(Path(sys.argv[1]), environment={}, resources={"rdma": asked or None})
result = machine.check_memlock(context)
print(result.status, result.code, result.observed, sep="|")
"""
ROOT = Path(__file__).parents[3]


def context(folder: Path, asked: int | None, gpus: bool = False, **environment: Any) -> Context:
    """Of a node whose root folder is `folder`."""
    if gpus:
        (folder / "dev").mkdir(exist_ok=True)
        (folder / "dev/nvidia0").touch()
    return make_context(folder, environment={"HOME": "", **environment}, resources={"rdma": asked})


def told(result: CheckResult) -> tuple[str, str]:
    """Status and code."""
    return result.status, result.code


def test_state_rate_link_and_addresses_of_each_port_are_read(tmp_path: Path) -> None:
    first, second = rdma.ports(sysfs(tmp_path, ROCE, HOST_GIDS))

    assert ("mlx5_0", 1, "ACTIVE", "100 Gb/sec (4X EDR)", True) == first[:5]
    assert {0: "IB/RoCE v1 of ens3np0", 3: "RoCE v2 of ens3np0"}.items() <= first.gids.items()
    assert [0, 1, 2, 3] == sorted(second.gids)


def test_an_efa_needs_no_address_of_roce(tmp_path: Path) -> None:
    root = sysfs(tmp_path, EFA)

    assert (Status.PASS, "") == told(rdma.check_rdma(context(tmp_path, 1), root))


def test_a_job_that_asks_for_no_rdma_runs_without_it(tmp_path: Path) -> None:
    assert (Status.PASS, "") == told(rdma.check_rdma(context(tmp_path, None), f"{tmp_path}/"))
    assert (Status.PASS, "") == told(rdma.check_rdma(context(tmp_path, None), sysfs(tmp_path, HALF_DOWN)))


@pytest.mark.parametrize(
    ("hidden", "said"),
    [(False, "no RDMA device is here"), (True, "mlx5_0 and mlx5_1: no file in /dev/infiniband")],
)
def test_no_device_at_all_fails_a_job_that_asks_for_one(tmp_path: Path, hidden: bool, said: str) -> None:
    """A container sees all of its machine in /sys, and may open what is in /dev."""
    root = sysfs(tmp_path, ROCE, files=False) if hidden else f"{tmp_path}/"
    result = rdma.check_rdma(context(tmp_path, 1), root)

    assert (Status.FAIL, "gpu-missing") == told(result)
    assert said == result.observed


def test_fewer_devices_than_asked_for_fail_but_in_pods(tmp_path: Path) -> None:
    """In a pod, for what a device plugin counts need not be devices; elsewhere they are."""
    root = sysfs(tmp_path, ROCE, HOST_GIDS)
    asks: dict[str, Any] = {"environment": {"HOME": ""}, "resources": {"rdma": 8}}
    result = rdma.check_rdma(make_context(tmp_path, **asks, platform="kubernetes"), root)

    assert (Status.UNKNOWN, "") == told(result)
    assert "the job asks for 8" in result.observed
    result = rdma.check_rdma(make_context(tmp_path, **asks), root)
    assert (Status.FAIL, "gpu-missing") == told(result)
    assert "only mlx5_0 and mlx5_1 are here" == result.observed


@pytest.mark.parametrize(("wanted", "status"), [("mlx4_0:2", Status.PASS), ("=mlx4_0:1", Status.FAIL)])
def test_a_port_that_is_down_counts_if_nccl_is_to_take_it(tmp_path: Path, wanted: str, status: str) -> None:
    root = sysfs(tmp_path, HALF_DOWN)
    result = rdma.check_rdma(context(tmp_path, 1, NCCL_IB_HCA=wanted), root)

    assert status == result.status
    if status == Status.FAIL:
        assert ("rdma-unfit", "mlx4_0 port 1 is DOWN, Disabled") == (result.code, result.observed)


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("", [0, 1]),
        ("mlx5", [0, 1]),
        ("mlx5_1", [1]),
        ("=mlx5_1:1", [1]),
        ("mlx5_1:2", []),
        ("=mlx5", []),
        ("^mlx5_1", [0]),
        ("^=mlx5_0,mlx5_1:1", []),
        ("mlx5_0:1:2,mlx5_9", [0]),
    ],
)
def test_nccl_takes_prefixes_names_and_ports_as_told(tmp_path: Path, value: str, taken: list[int]) -> None:
    result = rdma.check_rdma(context(tmp_path, 1, NCCL_IB_HCA=value), sysfs(tmp_path, ROCE, HOST_GIDS))

    assert len(taken) == result.facts["active"]
    assert (Status.PASS if taken else Status.FAIL) == result.status
    assert taken or f"NCCL_IB_HCA={value} matches no device here" == result.observed


@pytest.mark.parametrize(
    ("gids", "index", "status"),
    [(HOST_GIDS, "3", Status.PASS), (POD_GIDS, "3", Status.FAIL), (POD_GIDS, "7", Status.PASS)],
)
def test_an_empty_index_of_addresses_counts(tmp_path: Path, gids: str, index: str, status: str) -> None:
    """What is address 3 on a machine need not be in a pod; NCCL would take it unasked, so that it counts."""
    root = sysfs(tmp_path, ROCE, gids)
    for asked in (2, None):
        result = rdma.check_rdma(context(tmp_path, asked, gpus=True, NCCL_IB_GID_INDEX=index), root)
        assert status == result.status, result
    if status == Status.FAIL:
        assert "rdma-unfit" == result.code
        said = "NCCL_IB_GID_INDEX=3 is empty on mlx5_0 port 1 and mlx5_1 port 1, which has 4, 5, 6, 7"
        assert said == result.observed
        assert (Status.PASS, "") == told(rdma.check_rdma(context(tmp_path, 2), root))  # the hint


def test_an_empty_index_on_a_device_beside_is_no_failure(tmp_path: Path) -> None:
    """A card for storage need not have what those near the GPUs have: nobody knows whether NCCL takes it."""
    gids = "\n".join([*HOST_GIDS.splitlines()[:5], *POD_GIDS.splitlines()[5:]])
    result = rdma.check_rdma(context(tmp_path, 1, NCCL_IB_GID_INDEX="3"), sysfs(tmp_path, ROCE, gids))

    assert (Status.UNKNOWN, "") == told(result)
    assert result.observed.startswith("NCCL_IB_GID_INDEX=3 is empty on mlx5_1 port 1, which has 4, 5, 6, 7")


def test_one_fit_device_is_enough_where_one_is_asked_for(tmp_path: Path) -> None:
    gids = "\n".join(HOST_GIDS.splitlines()[:5])

    assert Status.PASS == rdma.check_rdma(context(tmp_path, 1), sysfs(tmp_path, ROCE, gids)).status
    assert Status.FAIL == rdma.check_rdma(context(tmp_path, 2), sysfs(tmp_path, ROCE, gids)).status


def test_what_the_index_of_addresses_means_is_a_fact_for_the_hub(tmp_path: Path) -> None:
    root = sysfs(tmp_path, ROCE, HOST_GIDS)

    assert "RoCE v2" == rdma.check_rdma(context(tmp_path, 2, NCCL_IB_GID_INDEX="3"), root).facts["gid"]
    assert "IB/RoCE v1" == rdma.check_rdma(context(tmp_path, 2, NCCL_IB_GID_INDEX="2"), root).facts["gid"]


def test_a_port_whose_interface_is_in_another_network_namespace_is_named(tmp_path: Path) -> None:
    result = rdma.check_rdma(context(tmp_path, 1), sysfs(tmp_path, ROCE))

    assert (Status.FAIL, "rdma-unfit") == told(result)
    assert "mlx5_0 port 1 and mlx5_1 port 1 of RoCE have no address (GID) here" == result.observed


@pytest.mark.parametrize(
    ("environment", "used"),
    [
        ({}, True),
        ({"NCCL_IB_DISABLE": "1"}, False),
        ({"NCCL_NET": "Socket"}, False),
        ({"NCCL_NET": "ib"}, True),
    ],
)
def test_nccl_takes_a_port_that_is_up_beside_gpus(tmp_path: Path, environment: Any, used: bool) -> None:
    """Where there are GPUs, and nobody keeps it from it."""
    root = sysfs(tmp_path, ROCE, HOST_GIDS)

    assert not rdma.is_used(context(tmp_path, None, **environment), root)
    assert used == rdma.is_used(context(tmp_path, None, gpus=True, **environment), root)


@pytest.mark.parametrize(
    ("soft", "asked", "expected"),
    [
        (64, 1, "fail|memlock-too-small|a rank may lock 64 KiB of memory, which RDMA"),
        (32, 1, "fail|memlock-too-small|a rank may lock 32 KiB of memory (a process may raise it to 64 KiB)"),
        (64, 0, "pass||64 KiB may be locked"),
    ],
)
@pytest.mark.parametrize("capable", [False, True])
def test_the_real_limit_of_locked_memory_counts_for_rdma_alone(
    tmp_path: Path, soft: int, asked: int, expected: str, capable: bool
) -> None:
    """The real limit of a real process, which counts for RDMA alone, and not for who has CAP_IPC_LOCK."""
    words = [sys.executable, "-c", LIMITED, str(tmp_path), str(soft << 10), str(64 << 10), str(asked)]
    said = run([*([] if capable else without_ipc_lock()), *words])

    assert said.startswith("pass||" if capable and asked else expected)
    assert bool(capable and asked) == ("CAP_IPC_LOCK lifts that" in said)


@pytest.mark.parametrize(
    ("soft", "status"),
    [
        (machine.LEAST_LOCKED - 1, Status.FAIL),
        (machine.LEAST_LOCKED, Status.UNKNOWN),
        (resource.RLIM_INFINITY, Status.PASS),
    ],
)
def test_too_small_a_limit_of_locked_memory_is_told_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, status: str
) -> None:
    monkeypatch.setattr(processes, "has_capability", lambda *_: False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))

    assert status == machine.check_memlock(context(tmp_path, 1)).status


@pytest.mark.parametrize(
    ("platform", "word"),
    [
        ("", "limits.conf"),
        ("local", "limits.conf"),
        ("slurm", "PropagateResourceLimitsExcept=MEMLOCK"),
        ("kubernetes", "containerd.service"),
    ],
)
def test_the_hint_names_what_sets_locked_memory_on_this_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, word: str
) -> None:
    monkeypatch.setattr(processes, "has_capability", lambda *_: False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 16, 1 << 16))
    job = make_context(tmp_path, resources={"rdma": 1}, platform=platform)

    assert word in machine.check_memlock(job).hint


def test_real_locking_fails_beyond_the_limit_that_is_read() -> None:
    """The kernel counts mlock(2) against the same limit, and by the same capability."""
    lines = (
        "import ctypes, mmap, resource",
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))",
        "area = mmap.mmap(-1, 1 << 20)",
        "address = ctypes.addressof(ctypes.c_char.from_buffer(area))",
        "print(ctypes.CDLL(None).mlock(ctypes.c_void_p(address), 1 << 20))",
    )
    words = [sys.executable, "-c", "\n".join(lines)]

    assert "0\n" == run(words)
    assert "-1\n" == run([*without_ipc_lock(), *words])


def run(words: list[str]) -> str:
    """What the command prints."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def without_ipc_lock() -> list[str]:
    """What comes before a command that shall have what an ordinary user has of it."""
    if not processes.has_capability(processes.IPC_LOCK):
        pytest.skip("needs root, to give up a capability")
    return ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]
