"""Reads NCCL's log at NCCL_DEBUG=INFO: in which layer NCCL failed or waits. Pure.

Layers, in the order in which a communicator is made: the GPU, bootstrap (addresses, over sockets), and for
each pair of ranks a transport: P2P between GPUs, SHM within a node, NET/IB or NET/Socket between nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

_HINTS = {
    "the choice of GPUs": "give every rank a GPU of its own: resources.gpus, and "
    "torch.cuda.set_device(LOCAL_RANK)",
    "its version": "give all nodes the same NCCL: one image, or one environment",
    "P2P": "`env: {NCCL_P2P_DISABLE: '1'}` goes around it; for good: switch off PCIe ACS, or set iommu=pt",
    "SHM": "give /dev/shm more room: `resources.shm`; `df /dev/shm` on that node",
    "NET/IB": "`env: {NCCL_IB_DISABLE: '1'}` goes around it, over sockets; for good: `ibstat`, with RoCE "
    "NCCL_IB_GID_INDEX, and `ulimit -l` must be unlimited",
    "NET/Socket": "open all TCP ports between the nodes; NCCL_SOCKET_IFNAME names the interfaces for data",
    "bootstrap": "open all TCP ports between the nodes; NCCL_SOCKET_IFNAME==NAME names the interface exactly",
    "CUDA": "`nvidia-smi` on that node: is the driver there, and new enough for this torch? A job without "
    "GPUs takes gloo",
}
_LAYERS = (
    ("the choice of GPUs", r"Duplicate GPU|Multiple Ranks are using"),
    ("its version", r"Mismatched NCCL version"),
    ("P2P", r"transport/p2p|CUDA IPC|peer access|P2P"),
    ("SHM", r"/dev/shm|shmutils|transport/shm|include/shm|nccl-shm"),  # noqa: S108 - a name
    ("NET/IB", r"NET/IB|ibv_|net_ib|ib_plugin"),
    ("NET/Socket", r"net_socket|NET/Socket"),
    ("bootstrap", r"[Bb]ootstrap"),
    ("CUDA", r"(?i)cuda failure|cuda error|cuda device|nvidia driver|no cuda"),
)
_HARMLESS = re.compile(r"libibverbs|[Pp]lugin (load|No|:)|libnccl-net")
ECHO = re.compile(
    r"[Cc]losed by|Broken pipe|reset by peer|recv failed|Failed to execute operation|encountered progressing"
)
"""What ranks say whose peer has failed."""
_VIA = re.compile(r"\bvia (NET/\w+|P2P|SHM|direct shared memory)")


class Layer(NamedTuple):
    name: str
    line: str  # which decides it
    sure: bool = True  # else it is where it stood still

    @property
    def hint(self) -> str:
        return _HINTS[self.name]


def layer(logs: Sequence[Sequence[str]], error: str, between_nodes: bool) -> Optional[Layer]:
    """Return the NCCL layer that failed the ranks; `error` is torch's on the first. None: not known."""
    found = [each for log in logs for each in _warned(log)]
    found.sort(key=lambda each: bool(ECHO.search(each.line)))
    if found and not ECHO.search(found[0].line):
        return found[0]
    for line in reversed(error.splitlines()):  # the deepest reason stands last
        name = _of(line)
        if name:
            return Layer(name, line.strip())
    return next(filter(None, (_stands(log, between_nodes) for log in logs)), found[0] if found else None)


def _warned(log: Sequence[str]) -> list[Layer]:
    """Return the layer of each warning, by its own words or by those of the functions it passed."""
    found = []
    for index, line in enumerate(log):
        where, warns, text = line.partition("NCCL WARN ")
        if not warns or _HARMLESS.search(text):
            continue
        trace = []
        for below in log[index + 1 :]:
            if "NCCL WARN" in below:
                break
            trace.append(below)
        name = _of(text) or _of(where) or next(filter(None, map(_of, trace)), "")
        if name:
            found.append(Layer(name, text.strip()))
    return found


def _of(text: str) -> str:
    return next((name for name, pattern in _LAYERS if re.search(pattern, text)), "")


def _stands(log: Sequence[str], between_nodes: bool) -> Optional[Layer]:
    """Return the layer that NCCL had reached when its log ends."""
    ways = [(match[1], line) for line in log for match in [_VIA.search(line)] if match]
    ways.sort(key=lambda way: way[0].startswith("NET") != between_nodes)
    if ways:
        name = "SHM" if "shared memory" in ways[0][0] else ways[0][0]
        return Layer(name if name in _HINTS else "NET/Socket", _text(ways[0][1]), sure=False)
    begun = [line for line in log if re.search(r"Bootstrap ?: Using", line)]
    return Layer("bootstrap", _text(begun[-1]), sure=False) if begun else None


def _text(line: str) -> str:
    return line.replace("NCCL INFO", "").strip()
