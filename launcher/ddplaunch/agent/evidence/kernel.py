"""What the kernel's log and nvidia-smi say. Without permission there is no log; `missing` has the reason.

NVIDIA's driver writes "NVRM: Xid (PCI:0000:65:00): 79, pid=812, name=python3, GPU has fallen off the bus.";
older drivers name no process, and where it is not known it is '<unknown>' or 0.

nvidia-smi is asked about the GPUs of the ranks, once and from a process of its own: a GPU that hangs may keep
it waiting for ever, in the kernel, where not even SIGKILL reaches it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterable
from typing import Callable, Optional

from ddplaunch.agent.contract import Xid

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_RECORD = 8192
_PID = re.compile(r"(?:\bpid[=: ]+|\bprocess |\w\[)(\d+)", re.IGNORECASE)
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]+)[^)]*\): (\d+)(?:, pid=(\d+))?")
_KEPT = 200
_BY_PROGRAMS = frozenset([13, 31, 43, 45])
"""Xids that one program causes and that leave the others on its GPU alone:
docs.nvidia.com/deploy/xid-errors."""


class KernelLog:
    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.missing = ""  # why the log cannot be read; empty if it can
        self._lines: list[str] = []
        self._xids: list[Xid] = []
        self._descriptor: Optional[int] = None
        try:
            if os.readlink("/proc/self/ns/pid") != _INITIAL_PID_NAMESPACE:
                # The log has pids of the initial namespace, which are unknown to us.
                raise PermissionError(1, "this container has its own pid namespace")
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"kernel log: {(error.strerror or str(error)).lower()}"

    def naming(self, pids: Iterable[int]) -> list[str]:
        """Return the new lines so far that name one of `pids`, the oldest first."""
        self._read()
        wanted = {str(pid) for pid in pids}
        return [line for line in self._lines if wanted.intersection(_PID.findall(line))]

    def xids(self, pids: Collection[int], gpus: Collection[str]) -> list[Xid]:
        """Return the events so far of these processes and GPUs (in the form of `Xid.gpu`), the oldest first.

        Events that another program on these GPUs has caused are left out.
        """
        self._read()
        return [xid for xid in self._xids if xid.pid in pids or (xid.gpu in gpus and not _of_a_program(xid))]

    def _read(self) -> None:
        while self._descriptor is not None:
            try:
                record = os.read(self._descriptor, _RECORD)
            except BrokenPipeError:
                continue  # records were overwritten, and the next read continues after the gap
            except OSError:
                break
            head, _, tail = record.decode(errors="replace").partition(";")
            text = tail.partition("\n")[0]
            self._lines.append(text)
            xid = _XID.search(text)
            if xid:
                pid = int(xid[3] or 0) or None
                self._xids.append(Xid(int(xid[2]), xid[1].lower(), _when(head), text, pid))
        del self._lines[:-_KEPT]
        del self._xids[:-_KEPT]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _of_a_program(xid: Xid) -> bool:
    return xid.pid is not None and xid.number in _BY_PROGRAMS


def _when(head: str) -> float:
    """Return the wall-clock time of a record: its third field counts microseconds since the start."""
    fields = head.split(",")
    since = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdecimal() else time.monotonic()
    return time.time() - max(0.0, time.monotonic() - since)


# --- GPUs

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
    """nvidia-smi at work, from now on. Without the program there is no answer."""

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
        """Return its first lines, and why there are none. Calls `meanwhile` every 20 ms."""
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
