"""The collective smoke test on one node: starts its ranks, reads their reports, and ends them with the gate.

`gate` makes it only if the job file asks for the test. It does not judge.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import pkgutil
import re
import signal
import subprocess
import time
from typing import Any, Callable

from ddplaunch.agent.checks import python
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.checks.python import Lacks
from ddplaunch.agent.contract import CheckResult, RendezvousSettings, SmokeRank, Status, StatusName, codec
from ddplaunch.agent.contract.messages import Message, SmokeGo, SmokeReady, SmokeResults, SmokeStop
from ddplaunch.agent.diagnosis.gate import smoke_test
from ddplaunch.agent.supervisor import launch
from ddplaunch.agent.system import phrases, ports, proc

IMPORT = 60.0
"""Seconds to import torch: a Python environment on a busy network file system is slow."""
PATIENCE = 20.0
"""Seconds without a step by any rank here."""
STUCK = 8.0
"""Seconds without a step while a peer acknowledges nothing: by then the kernel has sent its data three
times."""
SECONDS = 240.0
"""Seconds that the gate may take longer because of the test."""
GRACE = 3.0
"""Seconds without a step once a rank has failed: others may fail by themselves, or just wait for that
rank."""
_END = 5.0
_LINES = 12
_PREFIX = re.compile(r"^(\[[^]]*\] )?\S+:\d+:\d+ (\[\d+\] )?")
_PROGRESS = re.compile(r"NCCL WARN|Bootstrap|\bvia\b|Init COMPLETE|\w+\.cc?:\d+ -> \d")

Show = Callable[[str, list[CheckResult]], None]


class _Rank:
    def __init__(self, state: SmokeRank, process: subprocess.Popen[bytes], log: str) -> None:
        self.process = process
        self.log = log
        self.facts: dict[str, Any] = codec.dump(state)
        self.port = 0
        self._text = b""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def read(self) -> bool:
        """Take the rank's reports. Returns whether there were any."""
        assert self.process.stdout is not None
        data = self.process.stdout.read() or b""
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError):  # a sitecustomize may print as well
                update = json.loads(line)
                self.port = update.pop("port", self.port)
                self.facts.update(update)
        if self.process.poll() is not None and not self.over:
            code = self.process.returncode
            end = (
                f"was killed by {phrases.signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            )
            self.facts["error"] = f"its process {end}: {_last(self.log)}"
        return bool(lines)

    @property
    def over(self) -> bool:
        return self.facts["stage"] == "done" or bool(self.facts["error"])

    @property
    def ready(self) -> bool:
        return self.facts["stage"] == "imported" and (self.facts["rank"] != 0 or self.port != 0)

    def send(self, body: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(body).encode() + b"\n")
            self.process.stdin.flush()

    def result(self) -> SmokeRank:
        if self.facts["stage"] != "done":
            self.facts["waits"], self.facts["listens"] = _sockets(self.process.pid)
            self.facts["log"] = nccl_lines(f"{self.log}.nccl")
        return codec.load(SmokeRank, self.facts)


class _State(enum.Enum):
    IMPORTING = "the ranks start, and import torch"
    READY = "all ranks of this node wait for the others"
    RUNNING = "the ranks run the collective"
    STOPPED = "a rank elsewhere has failed"
    REPORTED = "the hub has the results"


class Smoke:
    """The smoke test on this node. `poll` returns messages for the hub; `close` ends all ranks."""

    def __init__(
        self, context: Context, folder: str, agreed: RendezvousSettings, backends: list[str], show: Show
    ) -> None:
        self._nodes, self._backends, self._show = context.plan.nodes, backends, show
        self._started = self._moved = self._looked = time.monotonic()
        self._state = _State.IMPORTING
        self._failed: list[SmokeRank] = []
        self._ranks: list[_Rank] = []
        each = context.plan.nproc_per_node or 1
        here = range(context.node * each, (context.node + 1) * each)
        try:
            interpreter = (python.facts(context) or {}).get("executable", context.plan.python)
            place = launch.LaunchContext(context.folder, context.node)
            env = launch.launch_environment(
                context.plan, context.node, context.attempt, agreed, place, context.environment
            )
            self._start(context, folder, env, interpreter, [(b, rank) for b in backends for rank in here])
        except (Lacks, launch.LaunchError, OSError) as error:
            self.close()
            self._failed = [
                SmokeRank(context.node, rank, b, "started", error=str(error))
                for b in backends
                for rank in here
            ]

    def _start(
        self,
        context: Context,
        folder: str,
        env: dict[str, str],
        interpreter: str,
        ranks: list[tuple[str, int]],
    ) -> None:
        each = context.plan.nproc_per_node or 1
        script = os.path.join(folder, "smoke_rank.py")
        with open(script, "wb") as file:
            file.write(pkgutil.get_data(__package__, "smoke_rank.py") or b"")
        for backend, rank in ranks:
            log = os.path.join(folder, f"smoke-{backend}-{rank}.log")
            debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{log}.nccl"} if backend == "nccl" else {}
            numbers = (rank, each * context.plan.nodes, rank % each)
            with open(log, "wb") as output:
                process = subprocess.Popen(
                    [interpreter, script, str(os.getpid()), backend, *map(str, numbers)],
                    env={**env, **debug},
                    cwd=context.workdir if os.path.isdir(context.workdir) else None,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,
                )
            self._ranks.append(_Rank(SmokeRank(context.node, rank, backend, "started"), process, log))

    def received(self, message: Message) -> None:
        """Act on `SmokeGo` (all ranks of the job have imported torch) or `SmokeStop` (one has failed)."""
        if isinstance(message, SmokeGo) and self._state == _State.READY:
            self._state, self._moved = _State.RUNNING, time.monotonic()
            for rank in self._ranks:
                rank.send({"address": message.address, "port": message.ports[rank.facts["backend"]]})
        elif isinstance(message, SmokeStop) and self._state != _State.REPORTED:
            self._state = _State.STOPPED

    def poll(self) -> list[Message]:
        """Return the messages for the hub that are due now."""
        now = time.monotonic()
        for rank in self._ranks:
            if rank.read():
                self._moved = now
        if self._state == _State.REPORTED:
            return []
        failed = bool(self._failed) or any(rank.facts["error"] for rank in self._ranks)
        imported = all(rank.ready for rank in self._ranks)
        if self._state == _State.IMPORTING and imported and not failed:
            self._state = _State.READY
            return [SmokeReady({r.facts["backend"]: r.port for r in self._ranks if r.port})]
        if now < self._until(failed) and not all(rank.over for rank in self._ranks):
            return []
        self._state = _State.REPORTED
        results = self._failed + [rank.result() for rank in self._ranks]
        self._show(
            "collective of all ranks", [_row(self._nodes, results, backend) for backend in self._backends]
        )
        return [SmokeResults(results)]

    def _until(self, failed: bool) -> float:
        if failed and self._state != _State.STOPPED:
            return self._moved + GRACE
        if self._state == _State.RUNNING and time.monotonic() > max(self._moved + STUCK, self._looked + 1):
            self._looked = time.monotonic()
            if any(_sockets(rank.process.pid)[0] for rank in self._ranks if not rank.over):
                return 0.0
        ends = {
            _State.IMPORTING: self._started + IMPORT,
            _State.RUNNING: self._moved + PATIENCE,
            _State.STOPPED: 0.0,
        }
        return ends.get(self._state, float("inf"))

    def close(self) -> None:
        """Kill all ranks and their children. Waits _END seconds for each: one that is in a driver call may
        not end.
        """
        for rank in self._ranks:
            if rank.process.poll() is None:  # otherwise its number may be another's by now
                os.killpg(rank.process.pid, signal.SIGKILL)
        for rank in self._ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(_END)
            for pipe in (rank.process.stdin, rank.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self._ranks = []


def _row(nodes: int, results: list[SmokeRank], backend: str) -> CheckResult:
    passes = all(rank.stage == "done" for rank in results if rank.backend == backend)
    status: StatusName = Status.PASS if passes else Status.FAIL
    return CheckResult("smoke", status, smoke_test.summary(nodes, results, backend))


def _sockets(pid: int) -> tuple[list[str], list[str]]:
    """Return the peers that do not answer the process or acknowledge its data, and the addresses where it
    listens.
    """
    inodes = proc.socket_inodes(pid)
    own = [each for each in ports.table() if each.inode in inodes]
    waits = {ports.address(s.remote) for s in own if s.state == ports.SYN_SENT or s.unconfirmed}
    listens = {ports.address(s.local) for s in own if s.state == ports.LISTEN}
    return sorted(waits), sorted(listens - {"0.0.0.0", "::"})


def _last(log: str) -> str:
    lines = _lines(log) or ["no output"]
    return phrases.clipped(lines[-1])


def nccl_lines(log: str) -> list[str]:
    """Return the last warnings and progress lines of NCCL's log, without their prefix."""
    lines = [phrases.clipped(_PREFIX.sub("", line)) for line in _lines(log) if _PROGRESS.search(line)]
    return lines[-_LINES:]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line for line in file.read()[-65536:].splitlines() if line.strip()]
    except OSError:
        return []
