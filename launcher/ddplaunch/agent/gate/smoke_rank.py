"""One rank of the collective smoke test. The trainer's Python runs it; the agent never imports it.

Arguments: the agent's pid, the backend, this rank, the number of ranks, the local rank. It prints each stage
as a line of JSON, and reads one line with the address and the port of rank 0's store. At the end it waits to
be killed, because peers may still need its connections.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from importlib import import_module
from typing import Any

SIZES = (4, 1 << 10, 1 << 16, 1 << 20, 1 << 24)
"""Bytes: a single packet, full frames, full queues."""
_CONNECT = 5.0
_PATIENCE = timedelta(seconds=15)
"""Time after which torch may raise by itself; the agent waits a little longer."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_KINDS = {TimeoutError: "timeout", ConnectionRefusedError: "refused"}

_kept: list[Any] = []
"""The store. Rank 0's serves the others for as long as its process lives."""


def report(**facts: Any) -> None:
    """Print one line for the agent."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def main(parent: int, backend: str, rank: int, world: int, local: int) -> None:
    """Run the smoke test of one rank, and report each stage."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    report(stage="imported")
    if rank == 0:
        _kept.append(_store(distributed, "127.0.0.1", 0))
        report(port=_kept[0].port)
    where = json.loads(sys.stdin.readline() or "{}")
    if not where:
        return
    if not _kept:
        try:
            socket.create_connection((where["address"], where["port"]), _CONNECT).close()
        except OSError as error:
            report(error=str(error), kind=_KINDS.get(type(error), "unreachable"))
            return
        _kept.append(_store(distributed, where["address"], where["port"]))
    report(stage="store")
    device = "cpu"
    if backend == "nccl":
        torch.cuda.init()
        device = f"cuda:{local % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    distributed.init_process_group(backend, store=_kept[0], rank=rank, world_size=world, timeout=_PATIENCE)
    report(stage="group")
    add_up(torch, distributed, device, rank, world)


def _store(distributed: Any, address: str, port: int) -> Any:
    return distributed.TCPStore(address, port, is_master=port == 0, timeout=_PATIENCE, wait_for_workers=False)


def add_up(torch: Any, distributed: Any, device: str, rank: int, world: int) -> None:
    """Run all_reduce in all sizes, and check every number in the result."""
    begun, wanted = time.monotonic(), world * (world + 1) / 2
    seconds = 0.0
    for size in SIZES:
        for _ in range(3):
            numbers = torch.full((size // 4,), rank + 1.0, device=device)
            started = time.monotonic()
            distributed.all_reduce(numbers)
            sums = float(numbers.min()), float(numbers.max())  # this waits until a GPU is done
            seconds = time.monotonic() - started
            if sums != (wanted, wanted):
                report(
                    error=f"{size} bytes add up to {sums[0]:g} to {sums[1]:g} instead of {wanted:g}",
                    kind="sum",
                )
                return
            report(size=size)
    report(stage="done", seconds=time.monotonic() - begun, rate=SIZES[-1] / seconds)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]))
    except Exception as failure:
        report(error=f"{type(failure).__name__}: {failure}"[:1000])
    sys.stdin.read()
    os._exit(0)  # no need to wait for its threads
