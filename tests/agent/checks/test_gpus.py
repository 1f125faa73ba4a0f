"""GPUs by their device files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gate.jobs import make_plan

from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import Status


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
    result = gpus.check(Context(make_plan(resources={"gpus": wanted}), "", 0, 0, b"k"), f"{tmp_path}/")

    assert (status, code) == (result.status, result.code)
