"""All nodes of a job on this machine: one hub, then a gate and a supervisor per node, as on a cluster.

Each is a process of its own, started from the same file. The host only carries their output, passes signals
on, and sees to it that nothing outlives it. It stays single-threaded: the kernel ties "die with the parent"
to the thread that started a child.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import BinaryIO, Callable, Optional

from ddplaunch.agent import codec, processes
from ddplaunch.agent.contract import Env, Exit, Files, JobPlan, JobStatus, Phase

HUB_START = 60.0
"""Seconds until the hub must listen. It needs a fraction of one, if it has a processor."""
HUB_END = 15.0
"""Seconds for the hub's last words once every node has ended."""
STOP_GRACE = 45.0
"""Seconds from the first signal to SIGKILL: evidence (5), torchrun's own patience with its workers (30)."""
_POLL = 0.05
_BUNDLE_MARK = b"-----BEGIN DDPLAUNCH BUNDLE-----"
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(plan: JobPlan, folder: str, attempt: int, gate_only: bool = False) -> int:
    """Run the job to its end, again after a node's fault as often as the plan allows. Returns an Exit."""
    processes.adopt_orphans()
    host = Host(plan, folder, gate_only)
    for number in (*_STOPPING, signal.SIGUSR2):
        signal.signal(number, lambda signum, _: host.signals.append(signum))
    try:
        while True:
            code = host.run(attempt)
            if code != Exit.NODE_AT_FAULT or attempt >= plan.retries or host.stopping:
                return code
            run = os.path.join(folder, Files.RUN)
            os.replace(run, f"{run}-{attempt}")
            host.logs.clear()
            attempt += 1
    finally:
        end_all()


class Child:
    """A started agent process, what to do with each line it prints, and whom to tell its exit code."""

    def __init__(
        self,
        words: list[str],
        env: dict[str, str],
        line: Callable[[bytes], None],
        ended: Callable[[int], None],
    ) -> None:
        self.line = line
        self.ended = ended
        self.rest = b""
        self.process = subprocess.Popen(
            [*processes.own_command(), *words, f"--die-with-parent={os.getpid()}"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    def drain(self) -> bool:
        """Hand on the whole lines that can be read now. False at the end of the stream."""
        data = self.pipe.read(1 << 20)
        while data:
            *lines, self.rest = (self.rest + data).split(b"\n")
            if lines:
                self.line(b"\n".join(lines) + b"\n")
            data = self.pipe.read(1 << 20)
        return data is None

    def close(self) -> None:
        self.drain()
        if self.rest:
            self.line(self.rest + b"\n")
        self.pipe.close()
        self.ended(self.process.returncode)


class Host:
    def __init__(self, plan: JobPlan, folder: str, gate_only: bool) -> None:
        self.plan = plan
        self.folder = folder
        self.gate_only = gate_only
        self.stopping = False
        self.kill_at: Optional[float] = None
        self.signals: list[int] = []
        self.selector = selectors.DefaultSelector()
        self.children: list[Child] = []
        self.exits: dict[int, int] = {}  # node -> exit code of its last process
        self.hub_exit: Optional[int] = None
        self.supervised = False
        self.bundled = False
        self.env: dict[str, str] = {}
        self.logs: dict[str, BinaryIO] = {}

    def run(self, attempt: int) -> int:
        """One attempt, from the hub's start to its last words."""
        self.exits, self.hub_exit, self.bundled = {}, None, False
        os.makedirs(self.path(Files.RUN), exist_ok=True)
        key = os.urandom(32).hex()
        with open(os.open(self.path(Files.KEY), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(key)
        self.env = {**os.environ, Env.KEY: key, Env.ATTEMPT: str(attempt)}
        # Nodes on one machine need loopback alone, and nobody else shall reach the hub.
        hub = self._start(["hub", "--host", "127.0.0.1"], {}, self._hub_line, self._hub_ended)
        if (
            self._until(lambda: self._listening() or self.hub_exit is not None, HUB_START)
            and self._listening()
        ):
            for node in range(self.plan.nodes):
                self._gate(node)
            self._until(lambda: len(self.exits) == self.plan.nodes)
            if self.gate_only and not any(self.exits.values()):
                hub.process.terminate()  # it would wait for supervisors that never come
        if not self._until(lambda: self.hub_exit is not None, HUB_END):
            hub.process.kill()
            self._until(lambda: self.hub_exit is not None)
        return self._conclude()

    def _gate(self, node: int) -> None:
        folder = self.path(Files.NODE.format(node=node))
        os.makedirs(folder, exist_ok=True)
        self._start_node("gate", node, lambda data: self._log(os.path.join(folder, Files.GATE_LOG), data))

    def _start_node(self, verb: str, node: int, line: Callable[[bytes], None]) -> None:
        with open(self.path(Files.HUB), encoding="utf-8") as file:
            port = json.load(file)["port"]
        env = {Env.NODE: str(node), Env.HUB: f"127.0.0.1:{port}"}
        self._start([verb], env, line, lambda code: self._node_ended(verb, node, code))

    def _node_ended(self, verb: str, node: int, code: int) -> None:
        if verb == "gate" and code == Exit.OK and not self.gate_only and not self.stopping:
            self.supervised = True
            self._start_node("run", node, self._output)
        else:
            self.exits[node] = Exit.STOPPED if self.stopping and verb == "gate" else code

    def _conclude(self) -> int:
        """The hub's verdict counts. When it died without one, the worst that a node reported does."""
        assert self.hub_exit is not None
        spoke = self.hub_exit >= 0 and self.hub_exit not in (1, Exit.UNUSABLE) and not self.gate_only
        nodes = [code if code >= 0 else Exit.WORKER_FAILED for code in self.exits.values()]
        code = self.hub_exit if spoke else max(nodes, default=Exit.UNUSABLE)
        try:
            status = codec.read(JobStatus, self.path(Files.STATUS))
        except (OSError, codec.ContractError):
            return code
        if (status.phase, status.exit_code) != (Phase.ENDED, code):
            now = time.time()
            status = dataclasses.replace(status, phase=Phase.ENDED, exit_code=code, since=now, updated=now)
            codec.write(self.path(Files.STATUS), status)
        return code

    # --------------------------------------------------------------- children

    def _start(
        self,
        words: list[str],
        env: dict[str, str],
        line: Callable[[bytes], None],
        ended: Callable[[int], None],
    ) -> Child:
        child = Child([*words, "--folder", self.folder], {**self.env, **env}, line, ended)
        self.children.append(child)
        self.selector.register(child.pipe, selectors.EVENT_READ, child)
        return child

    def _hub_ended(self, code: int) -> None:
        self.hub_exit = code

    def _until(self, happened: Callable[[], bool], seconds: Optional[float] = None) -> bool:
        """Carry output and signals until it has happened. False when the seconds ran out first."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not happened():
            if deadline is not None and time.monotonic() > deadline:
                return False
            for entry, _ in self.selector.select(_POLL):
                child: Child = entry.data
                if not child.drain():
                    self.selector.unregister(child.pipe)
            for child in [each for each in self.children if each.process.poll() is not None]:
                self.children.remove(child)
                if child.pipe in self.selector.get_map():
                    self.selector.unregister(child.pipe)
                child.close()
            self._pass_signals()
        return True

    def _pass_signals(self) -> None:
        while self.signals:
            number = self.signals.pop(0)
            if number != signal.SIGUSR2 and self.stopping:
                self.kill_at = 0.0  # asked twice
            elif number != signal.SIGUSR2:
                self.stopping = True
                self.kill_at = time.monotonic() + STOP_GRACE
            for child in self.children:
                # The hub ends by itself when the nodes have, and must be there until then.
                if child.ended != self._hub_ended:
                    child.process.send_signal(signal.SIGUSR2 if number == signal.SIGUSR2 else signal.SIGTERM)
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            self.kill_at = None
            end_all()

    # --------------------------------------------------------------- output

    def _output(self, data: bytes) -> None:
        self._log(self.path(Files.OUTPUT), data)
        _print(data)

    def _hub_line(self, data: bytes) -> None:
        """Everything but the bundle is for people, and a verdict only when no supervisor prints it too."""
        self._log(self.path(Files.HUB_LOG), data)
        words = b"" if self.bundled else data.partition(_BUNDLE_MARK)[0]
        self.bundled = self.bundled or _BUNDLE_MARK in data  # the hub's last words, in several pieces
        if self.supervised:
            words = b"".join(line for line in words.splitlines(keepends=True) if line[:1].isdigit())
        _print(words)

    def _log(self, path: str, data: bytes) -> None:
        if path not in self.logs:
            self.logs[path] = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the whole job
        self.logs[path].write(data)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _listening(self) -> bool:
        return os.path.exists(self.path(Files.HUB))


def end_all() -> None:
    """Kill every descendant. What a killed parent leaves behind becomes our child, hence the second look."""
    left = processes.descendants(os.getpid())
    while left:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
        left = processes.descendants(os.getpid())


def _print(data: bytes) -> None:
    """To whoever listens; a closed terminal must not end the training."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except (BrokenPipeError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process
