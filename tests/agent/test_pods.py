"""Pods without a cluster: every agent is PID 1 of its own namespace, of an unknown user, without HOME.

The hub's container does not see the processes of the others, and all that they share is the job's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent import printed
from tests.agent.gate.jobs import Agent, make_plan, wait_for

from ddplaunch.agent.contract import Bundle, Env, Exit, Files, JobPlan, codec

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
def _pods(pod_agent: Path) -> Iterator[Pods]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    # pytest's own folders are root's alone.
    with tempfile.TemporaryDirectory(prefix="ddplaunch-pods-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        pods = Pods([python(), "-I", "-S", str(shutil.copy(pod_agent, folder))], folder)
        yield pods
        pods.close()


@pytest.mark.parametrize("verb", ["hub", "gate", "run"])
def test_a_pod_that_is_deleted_at_once(pods: Pods, verb: str) -> None:
    """The kernel keeps from PID 1 signals that it does not wait for: the agent waits from its first line."""
    pod = pods.make()[0]
    plan = pod.folder / Files.PLAN
    plan.unlink()
    os.mkfifo(plan, 0o666)
    plan.chmod(0o666)
    container = pod.start(verb)
    held: list[int] = []
    wait_for(lambda: _open(plan, held))  # the agent waits for its plan, and has done nothing yet

    pod.signal(verb, signal.SIGTERM)

    assert Exit.STOPPED == container.wait(5)
    os.close(held[0])


def _open(pipe: Path, held: list[int]) -> bool:
    """Whether somebody reads from `pipe`; then `held` has its other end."""
    try:
        held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_a_job_from_its_start_to_its_end(pods: Pods) -> None:
    """Node 0 waits for the last node; then the hub has said all, and stays until it is told to end."""
    zero, one = pods.running(
        "import os, time; print('up', flush=True); time.sleep(3 * int(os.environ['DDPLAUNCH_NODE']))"
    )
    assert zero.containers["run"].wait() == one.containers["run"].wait() == Exit.OK
    for pod in (zero, one):
        assert {"verdicts": [], "exit_code": 0} == pod.last_words("gate") == pod.last_words("run")
    zero.containers["hub"].says("END DDPLAUNCH BUNDLE")

    for pod in (zero, one):
        assert pod.containers["hub"].process.poll() is None
        pod.signal("hub", signal.SIGTERM)
        assert Exit.OK == pod.containers["hub"].wait(5)
    assert (Exit.OK, []) == (zero.bundle().exit_code, zero.bundle().verdicts)
    assert "on node 1 it has nothing to do" in one.containers["hub"].output


def test_a_failing_gate_is_told_in_every_pod(pods: Pods) -> None:
    """The same verdict in the termination logs of the gate and of the hub."""
    zero, _ = pods.make(gate={"timeout": 8.0})  # within which its own gate comes, on a busy machine too
    hub, gate = zero.start("hub"), zero.start("gate")
    assert Exit.NODE_AT_FAULT == gate.wait()
    hub.says("END DDPLAUNCH BUNDLE")

    for verb in ("gate", "hub"):
        said = zero.last_words(verb)
        assert (20, ["node-missing"]) == (said["exit_code"], [each["code"] for each in said["verdicts"]])
    assert hub.process.poll() is None
    zero.signal("hub", signal.SIGTERM)
    assert Exit.OK == hub.wait(5)


def test_a_hub_whose_port_another_job_has(pods: Pods) -> None:
    """As on a machine's own network: the gate beside it hears why, and asks no stranger."""
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        zero, _ = pods.make(gate={"port": port, "timeout": 60.0})
        for verb in ("hub", "gate"):
            zero.start(verb, **{Env.HUB: f"localhost:{port}"})
        assert Exit.NODE_AT_FAULT == zero.containers["gate"].wait()

    for verb in ("gate", "hub"):
        assert ["port-in-use"] == [each["code"] for each in zero.last_words(verb)["verdicts"]]


def test_a_hub_that_is_ended_before_anybody_came(pods: Pods) -> None:
    """There is nothing to say but that."""
    zero, one = pods.make()
    zero.start("hub").says("listens on")
    one.start("hub").says("nothing to do")
    for pod in (zero, one):
        pod.signal("hub", signal.SIGTERM)
        assert Exit.OK == pod.containers["hub"].wait(5)

    assert Exit.STOPPED == zero.bundle().exit_code


def test_a_pod_that_is_deleted_at_the_gate(pods: Pods) -> None:
    """First its gate is told, then its hub, which has its say."""
    zero, _ = pods.make()
    zero.start("hub")
    zero.start("gate").says("waiting for node 1")
    for _ in range(2):
        zero.signal("gate", signal.SIGTERM)
    assert Exit.STOPPED == zero.containers["gate"].wait(5)
    for _ in range(2):
        zero.signal("hub", signal.SIGTERM)

    assert Exit.OK == zero.containers["hub"].wait(10)
    assert Exit.STOPPED == zero.bundle().exit_code
    assert 60 == zero.last_words("gate")["exit_code"]


@pytest.mark.fault("node-evicted")
def test_pod_zero_is_deleted_in_mid_run(pods: Pods) -> None:
    """Its supervisor takes evidence and ends; the hub tells the other node, and says who was evicted."""
    zero, one = pods.running()
    zero.signal("run", signal.SIGTERM)
    assert Exit.STOPPED == zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.STOPPED == one.containers["run"].wait()
    assert Exit.OK == zero.containers["hub"].wait()
    (found,) = zero.bundle().verdicts
    assert ("node-evicted", [0]) == (found.code, found.nodes)
    assert ["node-evicted"] == [each["code"] for each in one.last_words("run")["verdicts"]]


def test_signals_that_come_again_change_nothing(pods: Pods) -> None:
    """However often hub and supervisor are asked to end: the evidence of all ranks comes first."""
    zero, one = pods.running()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        for verb in ("hub", "run"):
            zero.signal(verb, number)

    assert [Exit.STOPPED] * 2 == [pod.containers["run"].wait() for pod in (zero, one)]
    assert Exit.OK == zero.containers["hub"].wait(60)
    found = zero.bundle()
    assert found.evidence is not None
    assert Exit.STOPPED == found.exit_code
    assert [1, 1] == [len(node.ranks) for node in found.evidence.evidence]


def test_the_whole_container_of_pod_zero_is_killed(pods: Pods) -> None:
    """As for memory: no word from its supervisor, and the kubelet ends the hub over it. It still tells."""
    zero, one = pods.running()
    zero.signal("run", signal.SIGKILL)
    zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.NODE_AT_FAULT == one.containers["run"].wait()
    assert Exit.OK == zero.containers["hub"].wait()
    (found,) = zero.bundle().verdicts
    assert ("network-lost", [0]) == (found.code, found.nodes)
    assert "went away: its agent ended without a word" in found.sentence


def test_a_hub_that_is_started_again(pods: Pods) -> None:
    """As the kubelet does when it was killed: it takes up the nodes that run, and does not wait for gates."""
    wait = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('/GO'): time.sleep(0.1)"
    zero, one = pods.running(wait.replace("/GO", str(pods.go)), gate={"timeout": 12.0})
    zero.signal("hub", signal.SIGKILL)
    zero.containers["hub"].wait()
    zero.start("hub")
    for pod in (zero, one):
        pod.containers["run"].says("the hub answers again", 30)
    time.sleep(13.0)  # beyond the gate's timeout
    pods.go.touch()

    assert [0, 0] == [pod.containers["run"].wait() for pod in (one, zero)]
    zero.containers["hub"].says("END DDPLAUNCH BUNDLE")
    left = zero.bundle()
    assert (Exit.OK, [], [0, 1]) == (left.exit_code, left.verdicts, [each.node for each in left.check_ins])


def test_a_hub_that_nobody_obeys(pods: Pods) -> None:
    """A node that hangs does not keep the hub from its last words within the pod's grace period."""
    zero, one = pods.running()
    (child,) = Path("/proc").glob(f"{one.containers['run'].process.pid}/task/*/children")
    os.kill(int(child.read_text().split()[0]), signal.SIGSTOP)
    zero.signal("run", signal.SIGTERM)
    zero.containers["run"].wait()
    zero.signal("hub", signal.SIGTERM)

    assert Exit.OK == zero.containers["hub"].wait(60)
    assert ["node-evicted"] == [found.code for found in zero.bundle().verdicts]


def test_orphans_do_not_stay_in_the_hubs_container(pods: Pods) -> None:
    """What `kubectl exec` leaves behind becomes PID 1's; nobody else would bury it."""
    zero, _ = pods.make()
    hub = zero.start("hub")
    hub.says("listens on")
    children = Path(f"/proc/{hub.process.pid}/task/{hub.process.pid}/children")
    first = children.read_text().split()[0]
    orphan = "sleep 0.2 & echo done"
    done = subprocess.run(
        ["nsenter", f"--target={first}", "--pid", "--mount", "sh", "-c", orphan],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "done\n" == done.stdout

    def processes() -> list[str]:
        listed = subprocess.run(
            ["nsenter", f"--target={first}", "--pid", "--mount", "sh", "-c", "cat /proc/[0-9]*/stat"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        return [line for line in listed.splitlines() if "(sleep)" in line]

    wait_for(lambda: not processes())


def test_somebody_asks_in_the_hubs_container(pods: Pods, agent: list[str]) -> None:
    """As `kubectl exec` does: with the container's environment, and what the hub left in the folder."""
    zero, _ = pods.running()
    env = {
        "PATH": os.environ["PATH"],
        Env.KEY: pods.key,
        Env.ATTEMPT: "0",
        Env.HUB: "x.{domain}:0",
    }
    done = subprocess.run(
        [*agent, "ask", "status", "--folder", str(zero.folder)],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )

    assert "" == done.stderr
    assert [0, 1] == [node["node"] for node in json.loads(done.stdout)["nodes"]]
