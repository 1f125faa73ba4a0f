"""The backend that a job names, against the devices that are here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gate.jobs import make_plan

from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import CheckResult, Status


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
