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
def test_fewer_gpus_than_ranks_is_a_fault_only_where_there_are_none(
    tmp_path: Path, wanted: int | None, files: list[str], status: str, code: str
) -> None:
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
        ("", 8, f"{FIRST}; 3 more alike: 1, 3, 7"),
    ],
)
def test_a_gpu_that_another_process_holds_counts_if_a_rank_will_use_it(
    tmp_path: Path, visible: str, ranks: int, said: str
) -> None:
    """It counts if a rank will use it; what is left of a process that has ended does not."""
    result = checked(tmp_path, H200_BUSY, ranks=ranks, CUDA_VISIBLE_DEVICES=visible)

    assert (Status.FAIL, "gpu-held") == (result.status, result.code) if said else Status.PASS == result.status
    assert said == result.observed or not said
    seen = len(visible.split(",")) if visible else 8
    assert (["NVIDIA H200"], seen) == (result.facts["models"], result.facts["count"])


@pytest.mark.parametrize(("rights", "count"), [((1, 2), 8), ((1, 2, 21, 22), None)])
def test_a_node_with_one_part_of_a_gpu_is_as_good_as_one_with_several(
    tmp_path: Path, rights: tuple[int, ...], count: int | None
) -> None:
    folder = tmp_path / "dev/nvidia-caps"
    folder.mkdir(parents=True)
    for number in rights:
        (folder / f"nvidia-cap{number}").touch()

    assert count == checked(tmp_path, H200_BUSY, wanted=None, ranks=1).facts["count"]


def test_a_job_that_asks_for_no_gpus_may_share_one(tmp_path: Path) -> None:
    assert Status.UNKNOWN == checked(tmp_path, H200_BUSY, wanted=None).status


def test_a_holder_is_described_by_command_user_and_job(tmp_path: Path) -> None:
    env = {**os.environ, "SLURM_JOB_ID": "770"}
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=env) as other:
        text = H200_BUSY.replace("1328667, /usr/local/bin/python3.10", f"{other.pid}, {sys.executable}")
        result = checked(tmp_path, text)
        other.communicate(b"\n")

    assert f"held by pid {other.pid} ({sys.executable} -c input()" in result.observed
    assert result.observed.endswith(", Slurm job 770)")


def test_a_pid_that_is_another_process_here_is_not_described(tmp_path: Path) -> None:
    """This very one is no /usr/local/bin/tritonserver."""
    text = H200_BUSY.replace("1328667, /usr/local/bin/python3.10", f"{os.getpid()}, /usr/bin/tritonserver")

    assert f"held by pid {os.getpid()} (/usr/bin/tritonserver)" in checked(tmp_path, text).observed


def test_the_models_of_the_gpus_are_facts_for_the_hub(tmp_path: Path) -> None:
    """Two kinds in one machine are both there; what is not told of memory is nobody's."""
    result = checked(tmp_path, A100_MIXED, ranks=3)

    assert Status.PASS == result.status
    assert ["NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"] == result.facts["models"]


@pytest.mark.parametrize(
    "tool", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho No devices were found\n", "no program"]
)
def test_a_driver_that_does_not_answer_is_not_held_against_the_job(tmp_path: Path, tool: str) -> None:
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
def test_a_job_that_asks_for_nccl_without_a_gpu_fails_with_its_own_words(
    tmp_path: Path, command: list[str], env: dict[str, str], said: str
) -> None:
    result = check(tmp_path, command, env)

    assert (Status.FAIL, "backend-unfit") == (result.status, result.code) if said else result.code == ""
    assert said in result.observed
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert Status.PASS == check(tmp_path, command, env).status


def test_nccl_is_no_matter_where_gpus_that_were_asked_for_are_missing(tmp_path: Path) -> None:
    assert Status.PASS == check(tmp_path, ["--backend", "nccl"], {}, wanted=1).status


def test_gloo_beside_gpus_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    result = check(tmp_path, ["--backend", "gloo"], {}, wanted=1)

    assert Status.UNKNOWN == result.status
    assert "--backend gloo" in result.observed
