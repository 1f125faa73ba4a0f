"""Whether the GPUs are there that the job asks for: a container sees those it was given, as devices."""

from __future__ import annotations

import glob
from typing import Optional

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult

_DEVICES = {
    "NVIDIA": "dev/nvidia[0-9]*",
    "Direct Rendering (AMD, Intel)": "dev/dri/renderD*",
    "accelerator": "dev/accel/accel*",
    "Gaudi": "dev/accel[0-9]*",
    "Neuron": "dev/neuron[0-9]*",
    "Ascend": "dev/davinci[0-9]*",
    "WSL": "dev/dxg",
}
"""Device files of what PyTorch may run on."""


def check(context: Context, root: str = "/") -> CheckResult:
    """FAIL when there is no GPU at all where some are asked for: a driver may have more files, or fewer."""
    wanted: Optional[int] = context.plan.resources.gpus
    counts = {kind: len(glob.glob(root + pattern)) for kind, pattern in _DEVICES.items()}
    found = {kind: count for kind, count in counts.items() if count}
    shown = ", ".join(f"{count} of {kind}" for kind, count in found.items()) or "no GPU"
    if not wanted:
        return passed("gpus", shown, devices=found)
    if not found:
        return failed(
            "gpus",
            "gpu-missing",
            "no device of a GPU is here",
            wanted=f"{wanted}",
            hint="the scheduler counts GPUs that no driver gives to the job: is the device plugin, or the "
            "container runtime's GPU support, at work on that machine? `nvidia-smi` there",
            devices=found,
        )
    if max(found.values()) < wanted:
        return _fewer(wanted, shown, found)
    return passed("gpus", shown, devices=found)


def _fewer(wanted: int, shown: str, found: dict[str, int]) -> CheckResult:
    hint = (
        "a device may serve several ranks (MIG, WSL); else the machine has lost a GPU: `nvidia-smi`, `dmesg`"
    )
    return unknown("gpus", f"{shown}; the job asks for {wanted}", hint, devices=found)
