"""A job of plain torchrun that hangs, for what is to be seen of it from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import own_port

from ddplaunch.agent.system import proc, processes

START = 120.0
"""Seconds in which its ranks must have come to a stand."""


@contextmanager
def hanging(folder: Path, program: str, there: int = 1, **settings: str) -> Iterator[dict[int, int]]:
    """Its two ranks by their pids, once there are so many files called there*; at the end nothing is left."""
    script, output = folder / "trains.py", folder / "output"
    script.write_text(program)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(own_port())]
    with output.open("wb") as file:
        launcher = subprocess.Popen(
            [sys.executable, *torchrun, str(script), str(folder)],
            env={**os.environ, **settings},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + START
        while len([*folder.glob("there*")]) < there:
            assert launcher.poll() is None, output.read_text()
            assert time.monotonic() < until, output.read_text()
            time.sleep(0.1)
        time.sleep(1)  # until the other rank waits for this one
        yield {pid: int(proc.environment(pid)["RANK"]) for pid in proc.children(launcher.pid)}
    finally:
        for pid in [launcher.pid, *processes.descendants(launcher.pid)]:
            processes.send(pid, signal.SIGKILL)
        launcher.wait()
