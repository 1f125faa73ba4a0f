"""GPUs by their device files and by what nvidia-smi said of real ones, and the backend that a job names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.checks.make import make_context
from tests.agent.checks.nvidia import A100_MIXED, H200_BUSY, install
from tests.agent.gate.jobs import make_plan

from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import CheckResult, Status

FIRST = "GPU 0 has 127.0 GiB of 140.4 GiB held by pid 1328667 (/usr/local/bin/python3.10)"


@pytest.mark.parametrize(
    ("wanted", "files", "status", "code"),
    [
        (None, [], Status.PASS, ""),
        (2, ["nvidia0", "nvidia1", "nvidiactl"], Status.PASS, ""),
        (2, ["dri/renderD128", "dri/renderD129", "kfd"], Status.PASS, ""),
        (2, ["nvidiactl", "nvidia-uvm"], Status.FAIL, "gpu-missing"),
        (2, [], Status.FAIL, "gpu-missing"),
        (2, ["nvidia3"], Status.UNKNOWN, ""),
    ],
)
def test_devices(tmp_path: Path, wanted: int | None, files: list[str], status: str, code: str) -> None:
    """None at all is a fault; fewer than asked for may be one card that several ranks share."""
    for name in files:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    result = gpus.check_gpus(Context(make_plan(resources={"gpus": wanted}), "", 0, 0, b"k"), f"{tmp_path}/")

    assert (status, code) == (result.status, result.code)


def checked(
    folder: Path, text: str, wanted: int | None = 1, ranks: int = 1, **environment: Any
) -> CheckResult:
    """On a machine where nvidia-smi says that."""
    (folder / "dev").mkdir(exist_ok=True)
    for number in range(8):
        (folder / f"dev/nvidia{number}").touch()
    environment = {"PATH": install(folder / "bin", text), **environment}
    context = make_context(folder, environment=environment, resources={"gpus": wanted}, nproc_per_node=ranks)
    return gpus.check_gpus(context, f"{folder}/")


@pytest.mark.parametrize(
    ("visible", "ranks", "said"),
    [
        ("2", 1, ""),
        ("2,4,5,6", 4, ""),
        ("2,0", 1, ""),
        ("GPU-4e9e74b7", 1, ""),
        ("2,0", 2, FIRST),
        ("7", 1, "GPU 7 has 56.7 GiB of 140.4 GiB held by pid 1758887 outside of this container"),
        (
            "",
            8,
            f"{FIRST}; 3 more alike: 1, 3, 7",
        ),
    ],
)
def test_a_gpu_that_somebody_else_holds(tmp_path: Path, visible: str, ranks: int, said: str) -> None:
    """It counts if a rank will use it; what is left of a process that has ended does not."""
    result = checked(tmp_path, H200_BUSY, ranks=ranks, CUDA_VISIBLE_DEVICES=visible)

    assert (Status.FAIL, "gpu-held") == (result.status, result.code) if said else Status.PASS == result.status
    assert said == result.observed or not said
    seen = len(visible.split(",")) if visible else 8
    assert (["NVIDIA H200"], seen) == (result.facts["models"], result.facts["count"])


@pytest.mark.parametrize(("rights", "count"), [((1, 2), 8), ((1, 2, 21, 22), None)])
def test_parts_of_a_gpu_are_not_counted(tmp_path: Path, rights: tuple[int, ...], count: int | None) -> None:
    """A node may be given several of one GPU, and is as good as one with as many of several."""
    folder = tmp_path / "dev/nvidia-caps"
    folder.mkdir(parents=True)
    for number in rights:
        (folder / f"nvidia-cap{number}").touch()

    assert count == checked(tmp_path, H200_BUSY, wanted=None, ranks=1).facts["count"]


def test_who_asks_for_no_gpus_is_told_only(tmp_path: Path) -> None:
    """A job that names none may share one."""
    assert Status.UNKNOWN == checked(tmp_path, H200_BUSY, wanted=None).status


def test_the_holder_is_described_where_it_is_seen(tmp_path: Path) -> None:
    """By what it runs, whose it is, and of which job it is."""
    env = {**os.environ, "SLURM_JOB_ID": "770"}
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=env) as other:
        text = H200_BUSY.replace("1328667, /usr/local/bin/python3.10", f"{other.pid}, {sys.executable}")
        result = checked(tmp_path, text)
        other.communicate(b"\n")

    assert f"held by pid {other.pid} ({sys.executable} -c input()" in result.observed
    assert result.observed.endswith(", Slurm job 770)")


def test_a_number_that_means_another_process_here(tmp_path: Path) -> None:
    """This very one is no /usr/local/bin/tritonserver."""
    text = H200_BUSY.replace("1328667, /usr/local/bin/python3.10", f"{os.getpid()}, /usr/bin/tritonserver")

    assert f"held by pid {os.getpid()} (/usr/bin/tritonserver)" in checked(tmp_path, text).observed


def test_models_are_for_the_hub_to_compare(tmp_path: Path) -> None:
    """Two kinds in one machine are both there; what is not told of memory is nobody's."""
    result = checked(tmp_path, A100_MIXED, ranks=3)

    assert Status.PASS == result.status
    assert ["NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"] == result.facts["models"]


@pytest.mark.parametrize(
    "tool", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho No devices were found\n", "no program"]
)
def test_a_driver_that_does_not_answer(tmp_path: Path, tool: str) -> None:
    """Nothing is known then, and nothing held against the job."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    path = install(tmp_path / "bin", H200_BUSY)
    (tmp_path / "bin/nvidia-smi").write_text(tool)
    context = make_context(tmp_path, environment={"PATH": path}, resources={"gpus": 1})
    result = gpus.check_gpus(context, f"{tmp_path}/")

    assert (Status.PASS, []) == (result.status, result.facts["models"])


# --- the backend


def check(root: Path, command: list[str], env: dict[str, str], wanted: int | None = None) -> CheckResult:
    """Of a node whose devices lie below `root`."""
    plan = make_plan(command=["train.py", *command], env=env, resources={"gpus": wanted})
    return gpus.check_backend(Context(plan, "", 0, 0, b"k"), f"{root}/")


@pytest.mark.parametrize(
    ("command", "env", "said"),
    [
        ([], {}, ""),
        (["--backend", "nccl"], {}, "--backend nccl"),
        (["--dist-backend=NCCL"], {}, "--dist-backend=NCCL"),
        ([], {"PL_TORCH_DISTRIBUTED_BACKEND": "nccl"}, "PL_TORCH_DISTRIBUTED_BACKEND=nccl"),
        (["--rdzv-backend", "nccl", "--backend", "mpi", "--backend-nccl"], {}, ""),
    ],
)
def test_nccl_without_a_gpu(tmp_path: Path, command: list[str], env: dict[str, str], said: str) -> None:
    """It fails where the job's own words say so, and they are quoted; with a device it does not."""
    result = check(tmp_path, command, env)

    assert (Status.FAIL, "backend-unfit") == (result.status, result.code) if said else result.code == ""
    assert said in result.observed
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert Status.PASS == check(tmp_path, command, env).status


def test_gpus_that_are_missing_are_the_gpus_matter(tmp_path: Path) -> None:
    """A job that asks for some is told by that check that there are none."""
    assert Status.PASS == check(tmp_path, ["--backend", "nccl"], {}, wanted=1).status


def test_gloo_beside_gpus_is_odd(tmp_path: Path) -> None:
    """It trains, slowly."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    result = check(tmp_path, ["--backend", "gloo"], {}, wanted=1)

    assert Status.UNKNOWN == result.status
    assert "--backend gloo" in result.observed
