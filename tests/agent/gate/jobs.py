"""A real hub and real gates, each a process of its own with its own folder, as on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

from tests.busy import BUSY

from ddplaunch.agent.contract import (
    Bundle,
    Env,
    Files,
    GatePlan,
    JobPlan,
    JobStatus,
    RendezvousSettings,
    ResourcePlan,
    Verdict,
    bundle_file,
    codec,
)

START = 15.0
"""Seconds for a process of ours to come up."""
COME = 12.0
"""Seconds of a gate's timeout in which nodes that are there come; at a load of 17 on two CPUs they take 8."""


def make_plan(**changes: Any) -> JobPlan:
    """Two nodes that start a script with whatever Python runs the agent; no torch is needed."""
    gate = GatePlan(**{"timeout": 300.0, **changes.pop("gate", {})})
    resources = ResourcePlan(**changes.pop("resources", {}))
    plain: dict[str, Any] = {
        "job": "trial",
        "nodes": 2,
        "nproc_per_node": 2,
        "launch": ["{python}"],
        "command": ["train.py"],
    }
    return JobPlan(**{**plain, **changes}, gate=gate, resources=resources)


def wait_for(happened: Callable[[], Any], seconds: float = START) -> None:
    """Wait until it is true, and fail when it does not become so."""
    deadline = time.monotonic() + BUSY * seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Agent:
    """One running hub or gate. Its output goes to a file, so that it never waits for us to read."""

    def __init__(self, words: list[str], env: dict[str, str], folder: Path, log: Path) -> None:
        self.folder = folder
        self._log = log
        self.started = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                words,
                env={**os.environ, **env},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit code, negative for a signal."""
        try:
            return self.process.wait(BUSY * seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {BUSY * seconds} s, having said:\n{self.output}"
            ) from None

    @property
    def output(self) -> str:
        """All that it has said so far."""
        return self._log.read_text("utf-8", "replace")

    def says(self, text: str, seconds: float = START) -> None:
        """Wait until it has said `text`."""
        try:
            wait_for(lambda: text in self.output, seconds)
        except AssertionError:
            raise AssertionError(f"did not say {text!r} in {BUSY * seconds} s, but:\n{self.output}") from None


class Job:
    """`host` in all calls: words that start a command on another host (`hosts.Host`)."""

    def __init__(self, folder: Path, agent: list[str]) -> None:
        self._folder = folder
        self._agent = agent
        self.key = os.urandom(8).hex().encode()  # tests run side by side; a gate takes any hub that knows it
        self._started: list[Agent] = []
        self.on_close: list[Callable[[], None]] = []
        self.hub_process: Agent

    def hub(
        self,
        plan: JobPlan,
        address: str | None = "127.0.0.1",
        port: int | None = None,
        host: Any = None,
        attempt: int = 0,
        name: str | None = None,
        env: dict[str, str] | None = None,
        gate_only: bool = False,
    ) -> Agent:
        """Start the hub; returns when it listens, or has ended."""
        given = {"--host": address, "--port": port and str(port), "--name": name}
        words = ["hub", *(word for option, value in given.items() if value for word in (option, value))]
        words += ["--gate-only"] if gate_only else []
        self.hub_process = hub = self._start(
            "hub", words, plan, {Env.ATTEMPT: str(attempt), **(env or {})}, host
        )
        wait_for(lambda: self._address_file().exists() or hub.process.poll() is not None)
        return hub

    def gate(
        self,
        plan: JobPlan,
        node: int,
        hub: str | None = None,
        host: Any = None,
        env: dict[str, str] | None = None,
        name: str = "",
    ) -> Agent:
        """Start the gate of a node. `hub`: host:port, when it is not where the hub says it is."""
        where = hub or f"127.0.0.1:{self.hub_port}"
        variables = {Env.NODE: str(node), Env.HUB: where, **(env or {})}
        return self._start(name or f"node-{node}", ["gate"], plan, variables, host)

    def waiting(self, node: int) -> tuple[Agent, Agent]:
        """Start the hub and the gate of one node of two; return both when it waits for the other."""
        plan = make_plan()
        hub, gate = self.hub(plan), self.gate(plan, node)
        hub.says(f"node {node} checked in")
        return hub, gate

    @property
    def hub_port(self) -> int:
        """As it is in hub.json."""
        port: int = json.loads(self._address_file().read_text())["port"]
        return port

    @property
    def bundle(self) -> Bundle:
        """As the hub left it. Of a release the nodes are told before it is written."""
        path = self._folder / "hub" / Files.BUNDLE
        wait_for(path.exists)
        return bundle_file.read(str(path))

    @property
    def status(self) -> JobStatus:
        """As the hub left it."""
        return codec.read(JobStatus, str(self._folder / "hub" / Files.STATUS))

    @property
    def verdict(self) -> Verdict:
        """The only one there is."""
        (verdict,) = self.bundle.verdicts
        return verdict

    def agreed(self, node: int) -> RendezvousSettings:
        """What the node's gate wrote for its supervisor."""
        path = self.folder(f"node-{node}") / Files.RUN / f"node-{node}" / Files.AGREED
        return codec.read(RendezvousSettings, str(path))

    def folder(self, name: str) -> Path:
        """Of a node, or of the hub."""
        return self._folder / name

    def again(self) -> None:
        """The job is to be started once more; what it left goes aside."""
        for place in ("hub", *(f"node-{node}" for node in range(8))):
            if self.folder(place).exists():
                self.folder(place).rename(self._folder / f"{place}-before")

    def close(self) -> None:
        """End what is still running or open."""
        for close in self.on_close:
            close()
        for agent in self._started:
            if agent.process.poll() is None:
                agent.process.kill()
            agent.process.wait(10)

    def _address_file(self) -> Path:
        return self._folder / "hub" / Files.HUB

    def _start(self, name: str, words: list[str], plan: JobPlan, env: dict[str, str], host: Any) -> Agent:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        codec.write(str(folder / Files.PLAN), plan)
        (folder / "train.py").touch()
        before = [] if host is None else host.words
        agent = Agent(
            [*before, *self._agent, *words, "--folder", str(folder)],
            {Env.KEY: self.key.decode(), **env},
            folder,
            self._folder / f"{name}.log",
        )
        self._started.append(agent)
        return agent
