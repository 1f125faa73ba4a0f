"""Pods without a cluster: every agent is PID 1 of its own namespace, of an unknown user, without HOME.

The hub's container does not see the processes of the others, and all that they share is the job's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent import printed
from tests.agent.gate.jobs import Agent, make_plan, wait_for

from ddplaunch.agent.contract import Bundle, Env, Files, JobPlan, codec

USER = 54321
"""Of no entry in /etc/passwd."""
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
WAITS = "import time; print('up', flush=True); time.sleep(300)"


def python() -> str:
    """One that this user may start: ours may lie below a folder of root's."""
    for path in (sys.executable, "/usr/bin/python3"):
        words = [path, "-c", "import sys; assert sys.version_info >= (3, 9)"]
        if subprocess.run([*AS_USER, "env", "-i", *words], capture_output=True, check=False).returncode == 0:
            return path
    return ""


def missing() -> str:
    """Why there can be no pods here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root, to make PID namespaces"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "needs unshare and setpriv (package util-linux)"
    probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False)
    if probe.returncode != 0:
        return "the kernel gives no namespaces here"
    return "" if python() else "needs a Python that every user may start"


class Pod:
    """One pod: a folder, and containers that are started in it one after the other."""

    def __init__(self, agent: list[str], folder: Path, plan: JobPlan, node: int, key: str) -> None:
        folder.mkdir()
        os.chown(folder, USER, USER)
        codec.write(str(folder / Files.PLAN), plan)
        self.folder = folder
        self._agent = agent
        self._node = node
        self._key = key
        self.containers: dict[str, Agent] = {}

    def start(self, verb: str, **env: str) -> Agent:
        """A container. Its root file system is the machine's, which this user may not write to."""
        end = self.folder / f"{verb}-termination"
        end.touch()
        end.chmod(0o666)
        variables = {
            "PATH": os.environ["PATH"],
            Env.NODE: str(self._node),
            Env.KEY: self._key,
            Env.HUB: "localhost:0",
            Env.NAMES: "localhost,localhost",
            Env.TERMINATION: str(end),
            **env,
        }
        given = [f"{name}={value}" for name, value in variables.items()]
        words = ["unshare", "--pid", "--fork", "--mount-proc", *AS_USER, "env", "-i", *given]
        words += [*self._agent, verb, "--folder", str(self.folder)]
        self.containers[verb] = Agent(words, {}, self.folder, self.folder.parent / f"{verb}-{self._node}.log")
        return self.containers[verb]

    def signal(self, verb: str, number: int) -> None:
        """To the container's PID 1."""
        parent = self.containers[verb].process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children")
        wait_for(lambda: children.read_text().split())
        os.kill(int(children.read_text().split()[0]), number)

    def last_words(self, verb: str) -> dict[str, Any]:
        """Of a container's termination log."""
        found: dict[str, Any] = json.loads((self.folder / f"{verb}-termination").read_text())
        return found

    def bundle(self) -> Bundle:
        """As it stands in the hub's log."""
        _, _, text = self.containers["hub"].output.partition("-----BEGIN DDPLAUNCH BUNDLE-----\n")
        text, end, _ = text.partition("\n-----END DDPLAUNCH BUNDLE-----")
        assert end
        return printed.bundle(text)


class Pods:
    """Two of them, of one job. They share a network, so localhost is the name of both."""

    def __init__(self, agent: list[str], folder: Path) -> None:
        self._agent = agent
        self._folder = folder
        # The hub's port follows from it, and another worker's pods are on the same localhost.
        self.key = str(uuid.uuid4())
        self.pods: list[Pod] = []
        self.go = folder / "go"

    def make(self, program: str = WAITS, **plan: Any) -> list[Pod]:
        """Of a job whose ranks run `program`."""
        script = self._folder / "train.py"
        script.write_text(program)
        gate = {"port": 0, "skip": ["interpreter", "versions"], **plan.pop("gate", {})}
        job = make_plan(launch=[python()], command=[str(script)], nproc_per_node=1, gate=gate, **plan)
        self.pods = [Pod(self._agent, self._folder / f"pod-{node}", job, node, self.key) for node in (0, 1)]
        return self.pods

    def running(self, program: str = WAITS, **plan: Any) -> list[Pod]:
        """Beyond the gate, with all ranks up."""
        pods = self.make(program, **plan)
        for pod in pods:
            pod.start("hub")
        gates = [pod.start("gate") for pod in pods]
        assert [0, 0] == [gate.wait() for gate in gates], [gate.output for gate in gates]
        for pod in pods:
            pod.start("run")
        for pod in pods:
            pod.containers["run"].says("up")
        return pods

    def close(self) -> None:
        for pod in self.pods:
            for verb, container in pod.containers.items():
                if container.process.poll() is None:
                    pod.signal(verb, signal.SIGKILL)  # the namespace goes with its PID 1
                container.process.wait(10)


@pytest.fixture(name="pods")
def _pods(agent_file: Path) -> Iterator[Pods]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    # pytest's own folders are root's alone.
    with tempfile.TemporaryDirectory(prefix="ddplaunch-pods-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        pods = Pods([python(), "-I", "-S", str(shutil.copy(agent_file, folder))], folder)
        yield pods
        pods.close()
