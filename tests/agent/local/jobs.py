"""Jobs of whole agents on this machine, for tests: their programs, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import Files, JobPlan, JobStatus, codec
from ddplaunch.agent.system import processes

PACKAGE = Path(processes.__file__).parents[3]


PRINTS = "print('it runs', flush=True)"


SECONDS = BUSY * 60.0


class Job:
    """A job of one command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: str, *words: str, stdout: int = subprocess.DEVNULL, **plan: object) -> None:
        """Start the host with a plan of one node that runs `program` in this Python."""
        values = {"job": "test", "nodes": 1, "nproc_per_node": None, "launch": [], "names": ["127.0.0.1"]}
        command = [sys.executable, "-c", program]
        made = JobPlan(**{**values, "command": command, "master_addr": "127.0.0.1", **plan})  # type: ignore[arg-type]
        codec.write(str(self.folder / Files.PLAN), made)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ddplaunch.agent", "local", "--folder", str(self.folder), *words],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> int:
        """The host's exit code, once it has ended."""
        assert self.process is not None
        return self.process.wait(SECONDS)

    def runs(self) -> bool:
        """Whether the command has said that it runs."""
        output = self.folder / Files.OUTPUT
        return output.exists() and b"it runs" in output.read_bytes()

    def status(self) -> JobStatus:
        """What everybody else is told."""
        return codec.read(JobStatus, str(self.folder / Files.STATUS))

    def processes(self, verb: str = "") -> list[int]:
        """All living processes that have this job's folder on their command line or in their environment."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                environment = Path(f"/proc/{name}/environ").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            ours = str(self.folder).encode() in words + environment
            if ours and state not in ("Z", "X") and (not verb or verb.encode() in words.split(b"\0")):
                found.append(int(name))
        return found


def waits_for(path: Path, meanwhile: str = "pass") -> str:
    """A program that says that it runs, and ends once the path is there."""
    return (
        f"import os, time\n{PRINTS}\nwhile not os.path.exists({str(path)!r}): time.sleep(0.05); {meanwhile}"
    )


def wait_for(happened: Callable[[], object]) -> None:
    """Wait until `happened()`, and fail when it does not."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    if job.process is not None:
        job.process.kill()
        job.process.wait()
    for pid in job.processes():
        os.kill(pid, signal.SIGKILL)
