"""Finds the GPUs that processes use, and asks nvidia-smi about them, once and in a process of its own.

A GPU that hangs may keep nvidia-smi waiting for ever in the kernel, where not even SIGKILL reaches it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from typing import Callable, Optional

_WAIT = 2.0
_DIES = 0.2
_LINES = 16
_QUERY = "index,pci.bus_id,utilization.gpu,temperature.gpu,ecc.errors.uncorrected.volatile.total"
_NODE = re.compile(r"/dev/nvidia(\d+)")
_MINOR = re.compile(r"Device Minor:\s*(\d+)")


def gpus_in_use(pids: Iterable[int], proc: str = "/proc") -> set[str]:
    """Return the PCI addresses, '0000:65:00', of the GPUs whose devices these processes hold open."""
    folder = f"{proc}/driver/nvidia/gpus"
    addresses = {}
    for name in _listed(folder):
        try:
            with open(f"{folder}/{name}/information", encoding="utf-8", errors="replace") as file:
                minor = _MINOR.search(file.read())
        except OSError:
            continue
        if minor:
            addresses[minor[1]] = name.rpartition(".")[0].lower()
    held = set()
    for pid in pids if addresses else ():
        for name in _listed(f"{proc}/{pid}/fd"):
            try:
                node = _NODE.fullmatch(os.readlink(f"{proc}/{pid}/fd/{name}"))
            except OSError:
                continue
            if node and node[1] in addresses:
                held.add(addresses[node[1]])
    return held


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


class Question:
    """nvidia-smi, working from now on. Without the program there is no answer."""

    def __init__(self) -> None:
        tool = shutil.which("nvidia-smi")
        words = [tool or "", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
        self._until = time.monotonic() + _WAIT
        self._process: Optional[subprocess.Popen[bytes]] = None
        if tool is not None:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )

    def answer(self, meanwhile: Callable[[], None]) -> tuple[list[str], str]:
        """Return its first lines, or why there are none. Calls `meanwhile` every 20 ms."""
        if self._process is None:
            return [], "nvidia-smi: not found"
        while self._process.poll() is None and time.monotonic() < self._until:
            time.sleep(0.02)
            meanwhile()
        try:
            output, _ = self._process.communicate(timeout=0.01)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=_DIES)
            return [], f"nvidia-smi did not answer in {_WAIT:.0f} s"
        return output.decode(errors="replace").splitlines()[:_LINES], ""
