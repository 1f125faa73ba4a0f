"""`ddplaunch` as a person calls it: a process of its own, real torchrun, a state folder for it alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY

MARK = "DDPLAUNCH_TEST"
TRAIN = Path(__file__).with_name("train.py")
SCRIPT = "import sys; from ddplaunch.cli.main import main; sys.exit(main())"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them import torch, rank by rank."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")


class Desk:
    """Somebody's terminal: a folder to work in, an environment, and all processes that come of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.env = os.environ | {
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            MARK: self.mark,
        }
        for name in ("NO_COLOR", "CI"):
            self.env.pop(name, None)

    def job(self, *words: str, name: str = "tiny", nodes: int = 1, nproc: int = 2, more: str = "") -> str:
        """Writes a job file that trains with these arguments; returns its path."""
        command = ", ".join(f'"{word}"' for word in ("train.py", *words))
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"apiVersion: ddplaunch/v1\nname: {name}\nnodes: {nodes}\nnproc_per_node: {nproc}\n"
            f"python: {sys.executable}\nsource: {TRAIN}\ncommand: [{command}]\n{more}"
        )
        return str(path)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`ddplaunch` with these words, in a session of its own, as a terminal gives it."""
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """`ddplaunch` with these words, to its end."""
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=BUSY * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                pytest.fail(f"`ddplaunch {' '.join(words)}` took more than {BUSY * seconds} s\n{out}\n{err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def processes(self) -> list[int]:
        """Everything alive that was started from here, whoever its parent is by now."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0")
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marked and state not in "ZX":
                found.append(int(path.name))
        return found

    def gone(self) -> None:
        """Wait until nothing that was started from here is left."""
        eventually(lambda: not self.processes(), "all processes end")


def eventually(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait for what must come about; fail, saying what did not, after so many seconds."""
    deadline = time.monotonic() + BUSY * seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {BUSY * seconds} s"
        time.sleep(0.05)


@pytest.fixture(name="desk")
def _desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk, at whose end nothing may be left running."""
    desk = Desk(tmp_path)
    yield desk
    left = desk.processes()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
