"""GPUs of processes, by the driver's files, and what nvidia-smi says of them.

No GPU is here: the driver's file is that of a real GTX TITAN X, and nvidia-smi is a script with the words of
the real one about a lost GPU (issue 81 of JosephKJ/OWOD).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ddplaunch.agent.evidence import kernel

INFORMATION = """Model:           GeForce GTX TITAN X
IRQ:             64
GPU UUID:        GPU-4ce175fe-a313-4c4a-d620-560e96e8ef2e
Video BIOS:      84.00.45.00.03
Bus Type:        PCIe
DMA Size:        40 bits
DMA Mask:        0xffffffffff
Bus Location:    0000:65:00.0
Device Minor:    {}
Blacklisted:     No
"""
LOST = (
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover "
    "this GPU"
)
Tool = Callable[[str], None]


@pytest.fixture(name="tool")
def _tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Put a script in the place of nvidia-smi."""

    def tool(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tool


def test_gpus_that_a_process_holds_open_are_known_by_address(tmp_path: Path) -> None:
    for address, minor in (("0000:65:00.0", 1), ("0000:17:00.0", 0), ("0000:AF:00.0", 2)):
        folder = tmp_path / "driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(minor))
    opened = {"812": ["nvidia1", "nvidia-uvm", "nvidiactl", "null"], "813": ["nvidia2"], "991": ["nvidia0"]}
    for pid, names in opened.items():
        (tmp_path / pid / "fd").mkdir(parents=True)
        for number, name in enumerate(names):
            (tmp_path / pid / "fd" / str(number)).symlink_to(f"/dev/{name}")

    assert {"0000:65:00", "0000:af:00"} == kernel.gpus_in_use([812, 813, 4199999], str(tmp_path))
    assert set() == kernel.gpus_in_use([812], str(tmp_path / "absent"))


def test_what_nvidia_smi_says_is_kept_also_where_it_fails(tool: Tool) -> None:
    tool(f"echo '{LOST}' >&2; exit 15")

    assert ([LOST], "") == kernel.Question().answer(lambda: None)


def test_an_nvidia_smi_that_hangs_is_given_up_after_two_seconds(tool: Tool) -> None:
    tool("exec sleep 60")
    looks: list[None] = []
    question = kernel.Question()

    assert ([], "nvidia-smi did not answer in 2 s") == question.answer(lambda: looks.append(None))
    assert looks


def test_a_missing_nvidia_smi_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ([], "nvidia-smi: not found") == kernel.Question().answer(lambda: None)
