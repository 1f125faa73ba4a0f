"""A Python that starts with the hook, and the supervisor's end of its socket."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.busy import BUSY

from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line
from ddplaunch.agent.supervisor.launch import LaunchContext, with_hook


class Supervisor:
    """Starts programs below a hook socket, and asks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = LaunchContext(str(folder), 0)
        self.place.prepare()
        self.heard: list[tuple[Line, HookMessage]] = []
        self.hooks = Hooks(lambda line, message: self.heard.append((line, message)))
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self,
        program: str,
        rank: int | None = 0,
        words: str = "",
        python: str = sys.executable,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        output: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Run `program` as a rank, or as none; `words` go behind the socket's name.

        It prints to pipes, or to the file `output`.
        """
        path = self.folder / f"train{len(self.started)}.py"
        path.write_text(program)
        own = {
            name: value
            for name, value in os.environ.items()
            if name not in ("RANK", "LOCAL_RANK", "PYTHONPATH")
        }
        ranked = {} if rank is None else {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        environment = with_hook({**own, **ranked, **(env or {})}, self.place, self.hooks.name + words)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(output.open("a")) if output else subprocess.PIPE
            process = subprocess.Popen(
                [python, *options, str(path)],
                env=environment,
                cwd=self.folder,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, program: str, **more: Any) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a program that ends by itself, while the socket is served."""
        process = self.start(program, **more)

        def over() -> bool:
            for line, message in self.heard:
                if "raised" in message:
                    line.send(b"go")
            return process.poll() is not None

        self.until(over)
        self.hooks.listen(0.05)
        out, err = process.communicate()
        return process.returncode, out, err

    def until(self, happened: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Serve the socket until it has happened."""
        deadline = time.monotonic() + BUSY * seconds
        while not (found := happened()):
            assert time.monotonic() < deadline, f"it did not happen; heard: {[m for _, m in self.heard]}"
            self.hooks.listen(0.02)
        return found

    def line(self, role: str) -> Line:
        """The first process that said hello in this role."""
        line: Line = self.until(lambda: next((x for x, m in self.heard if m.get("hello") == role), None))
        return line

    def ask(self, line: Line, word: str) -> HookMessage:
        line.ask(word.encode())
        answer: HookMessage = self.until(lambda: line.answer)
        return answer

    def messages(self, kind: str) -> list[HookMessage]:
        return [message for _, message in self.heard if kind in message]

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children hold its pipes open
            process.communicate()
        self.hooks.close()


@pytest.fixture(name="supervisor")
def _supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path)
    yield supervisor
    supervisor.close()
