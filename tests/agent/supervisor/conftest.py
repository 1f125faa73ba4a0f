"""A node's supervisor as nodes run it, a hub that listens to it, and a look at what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.supervisor.samples import Clock
from tests.busy import BUSY

from ddplaunch.agent.contract import Env, Files, JobPlan, codec
from ddplaunch.agent.transport import protocol
from ddplaunch.agent.transport.protocol import Body, Channel

KEY = b"key of the test"
TOKEN = "DDPLAUNCH_TEST_TOKEN"

LAUNCHER = """
import os, signal, subprocess, sys, time
workers = []
def end(*_):
    for worker in workers:
        worker.terminate()
    for worker in workers:
        try:
            worker.wait(float(os.environ.get("PATIENCE", "3")))
        except subprocess.TimeoutExpired:
            worker.kill()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
for rank in range(int(os.environ["RANKS"])):
    env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": "test"}
    log = os.path.join(env["PET_LOG_DIR"], "run", "attempt_0", str(rank))
    os.makedirs(log)
    with open(log + "/stdout.log", "w") as out, open(log + "/stderr.log", "w") as err:
        workers.append(subprocess.Popen([sys.executable, *sys.argv[1:]], env=env, stdout=out, stderr=err))
while any(worker.poll() is None for worker in workers):
    if any(worker.poll() for worker in workers):
        end()
    time.sleep(0.1)
sys.exit(any(worker.returncode for worker in workers))
"""
"""Does with its workers what torchrun does: most of a run can then be tried where torch is not."""


def wait_for(happened: Callable[[], Any], seconds: float = 20.0, what: str = "it") -> Any:
    """What `happened()` returns once that is true; fails when it never is."""
    deadline = time.monotonic() + BUSY * seconds
    while True:
        found = happened()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen within {BUSY * seconds} s"
        time.sleep(0.02)


class Hub:
    """The other end: takes what a supervisor says, says what a test wants."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.said: list[tuple[str, Body]] = []
        self.channel: Channel | None = None
        self.judge: Callable[[str, Body], None] = lambda kind, body: None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def bodies(self, kind: str) -> list[Body]:
        return [body for said, body in list(self.said) if said == kind]

    def wait_for(self, kind: str, seconds: float = 30.0) -> Body:
        """The first message of this kind."""
        body: Body = wait_for(lambda: self.bodies(kind), seconds, f"a message `{kind}`")[0]
        return body

    def send(self, kind: str, body: Body) -> None:
        assert self.channel is not None
        self.channel.send(kind, body)

    def hang_up(self) -> None:
        assert self.channel is not None
        self.channel.close()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.listener.close()

    def _serve(self) -> None:
        self.listener.settimeout(0.05)
        while not self._over.is_set():
            with contextlib.suppress(OSError, protocol.ProtocolError):
                connection, _ = self.listener.accept()
                self.channel = Channel.accept(connection, KEY, 0, time.monotonic() + BUSY * 5)
                with contextlib.closing(self.channel):
                    self._listen(self.channel)

    def _listen(self, channel: Channel) -> None:
        while not self._over.is_set():
            message = channel.receive(0.05)
            if message is not None:
                self.said.append(message)
                self.judge(*message)
                if message[0] == "finished":
                    channel.send("noted", {})


class Node:
    """A supervisor under test. Every process that it starts carries a token by which it is found again."""

    def __init__(self, agent: list[str], folder: Path) -> None:
        self.agent = agent
        self.folder = folder
        self.token = uuid.uuid4().hex
        self.process: subprocess.Popen[bytes] | None = None
        self._output: Path | None = None

    def start(
        self,
        words: list[str],
        hub: Hub | None = None,
        ranks: int | None = None,
        env: dict[str, str] | None = None,
        before: list[str] | None = None,
        **plan: Any,
    ) -> subprocess.Popen[bytes]:
        """`agent run` with `words` as the launch command; `before`: words to put before the agent's own."""
        job = JobPlan("job", 1, ranks, words, [], python=sys.executable, **plan)
        codec.write(str(self.folder / Files.PLAN), job)
        port = hub.port if hub is not None else 1  # nobody listens on port 1
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")},
            Env.KEY: KEY.decode(),
            Env.NODE: "0",
            Env.HUB: f"127.0.0.1:{port}",
            "RANKS": str(ranks or 1),
            TOKEN: self.token,
            **(env or {}),
        }
        self._output = self.folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*(before or []), *self.agent, "run", "--folder", str(self.folder)],
                env=environment,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self.process

    def launch(
        self, program: str, ranks: int, hub: Hub | None = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start `ranks` workers that run `program`, below a launcher of a few lines."""
        script, launcher = self.folder / "program.py", self.folder / "launcher.py"
        script.write_text(program)
        launcher.write_text(LAUNCHER)
        return self.start([sys.executable, str(launcher), str(script)], hub, ranks, **more)

    def exit_code(self, seconds: float = 40.0) -> int:
        assert self.process is not None
        return self.process.wait(BUSY * seconds)

    @property
    def output(self) -> str:
        assert self._output is not None
        return self._output.read_text(errors="replace")

    @property
    def here(self) -> Path:
        """The node's folder."""
        return self.folder / Files.NODE.format(node=0)

    def living(self) -> dict[int, str]:
        """Pid and command line of everything that was started here and lives."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environ = Path("/proc", name, "environ").read_bytes()
                if self.token.encode() in environ:
                    found[int(name)] = Path("/proc", name, "cmdline").read_text().replace("\0", " ")
        return found

    def close(self) -> None:
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


@pytest.fixture(name="hub")
def _hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture(name="node")
def _node(agent: list[str], tmp_path: Path) -> Iterator[Node]:
    node = Node(agent, tmp_path)
    yield node
    node.close()


@pytest.fixture(name="clock")
def _clock() -> Clock:
    clock = Clock()
    clock.second(counted=(4, 4), initialized=True)
    clock.seconds(4, counted=(5, 5), initialized=True)
    assert (clock.stuck, clock.still) == (3.0, 3.0)
    return clock
