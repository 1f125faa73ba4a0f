"""Runs all nodes of a job on this machine: one hub, and for each node a gate and a supervisor.

Or it runs one node of a job whose other nodes are started separately: then the hub is here only on node 0,
and the environment has the hub's address and key (`join.prepare`).

Hub, gates and supervisors are separate processes, started from the same file. The host only copies their
output, passes signals on, and leaves no process behind. It stays single-threaded, because the kernel ties
"die with the parent" to the thread that started a child.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.contract import (
    OUTPUT_LOST,
    Env,
    Exit,
    Files,
    JobPlan,
    JobStatus,
    Marks,
    Phase,
    StopRequest,
    Verdict,
    codec,
)
from ddplaunch.agent.local.carrier import Carrier, UserStreams
from ddplaunch.agent.system import phrases, proc, processes
from ddplaunch.agent.system.files import LogFile
from ddplaunch.agent.system.signals import PAUSES, Received, SignalReader, is_ignored, pass_on
from ddplaunch.agent.transport.endpoints import Endpoint

HUB_START = 60.0
"""Seconds until the hub must listen. On a free processor it needs a fraction of one."""
HUB_END = 30.0
"""Seconds for the hub to end once every node has ended, of which its last messages may take 15; and for the
gates to end once the hub has ended."""
HUBS = 5
"""How often a hub is restarted that is killed while nodes are at the gate."""
HUB_STOPPED = 5.0
"""Seconds for which a hub may be stopped before another one is started: gates wait for a hub for 10."""
STOP_GRACE = 45.0
"""Seconds from the first signal to SIGKILL: evidence (5), and torchrun's own patience with its workers
(30)."""
HURRIED = 20.0
"""Seconds from a second Ctrl-C to SIGKILL: for the evidence, and the hub's last output."""
STOPPED = 6.0
"""Seconds for the launch commands to stop on Ctrl-Z, if they have handlers that do something first."""
_ENDS_AT_GATE = (signal.SIGHUP, signal.SIGQUIT)
_ENDS = (signal.SIGTERM, signal.SIGINT, *_ENDS_AT_GATE)
"""Signals that ask for the end. Some do so only until there is a command, which may use them itself."""
_POLL = 0.05
_CALM = 0.25
"""Seconds between two looks at the children and at signals, longer than usual, while all ranks train: each
look takes a moment from a core that a rank may need."""
_BUNDLE_MARK = Marks.BUNDLE.encode()


class Part(NamedTuple):
    """The one node of the job that is here. `key_server`: node 0's arguments for `agent.pyz keys`."""

    node: int
    hub: Endpoint
    key: str
    key_server: Sequence[str] = ()


def main(
    plan: JobPlan,
    folder: str,
    attempt: int,
    gate_only: bool = False,
    part: Optional[Part] = None,
    streams: Optional[UserStreams] = None,
) -> int:
    """Run the job to its end; again, if that may go well elsewhere and the plan allows it. Returns an Exit.

    `streams`: the user's, if the one node's command runs in the foreground.
    """
    processes.adopt_orphans()
    host = Host(plan, folder, gate_only, part, SignalReader(), streams)
    code = _run(host, attempt)
    lost = "" if host.carrier is None else host.carrier.lost()
    if lost:
        with contextlib.suppress(OSError):  # this disk may be the one that is full
            os.write(2, f"ddplaunch: {lost}\n".encode())
        # The exit code is that of any program that could not write its output.
        code = OUTPUT_LOST if code == Exit.OK else code
        host.note_lost(lost, code)
    return code


def _run(host: Host, attempt: int) -> int:
    plan = host.plan
    code: Optional[int] = None
    try:
        while True:
            code = host.run(attempt)
            if attempt >= plan.retries or not host.comes_back(code):
                return code
            host.renew(f"retry {attempt + 1} of {plan.retries}")
            run = host.path(Files.RUN)
            os.replace(run, f"{run}-{attempt}")
            host.close_logs()
            attempt += 1
    finally:
        # If there is a code, our own processes have ended properly, and what is left belongs to the command.
        if code is None or host.stopping or not plan.keep_background:
            end_all()
        host.close_logs()
        if host.carrier is not None:
            host.carrier.finish(host.must_stop)


class Host:
    def __init__(
        self,
        plan: JobPlan,
        folder: str,
        gate_only: bool,
        part: Optional[Part],
        signals: SignalReader,
        streams: Optional[UserStreams] = None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.part = part
        self.nodes = range(plan.nodes) if part is None else [part.node]
        self.gate_only = gate_only
        self.stopping = False
        self.kill_at: Optional[float] = None
        self.limit_at = math.inf  # time.monotonic() when the plan's time limit ends the attempt
        self.is_at_limit = False  # the time limit is what ends it
        self.signals = signals
        self.early: list[int] = []  # signals for the command that came before it was started
        self.pausing = 0.0  # until when the launch commands may stop, by time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.selector.register(signals, selectors.EVENT_READ)
        self.children: list[Child] = []
        self.exits: dict[int, int] = {}  # node -> exit code of its last process
        self.hub_exit: Optional[int] = None
        self.hub: Optional[Child] = None
        self.hubs = 0  # restarts of the hub
        self.hub_ran = 0.0  # time.monotonic() when the hub was last not stopped
        self.at_gate: dict[int, Optional[Child]] = {}  # nodes at the gate, and their gate processes
        self.supervised = False
        self.bundled = False
        self.env: dict[str, str] = {}
        # In the foreground, stdout belongs to the command alone.
        self.console = LogFile(sys.stdout.fileno() if streams is None else streams.stderr)
        self.logs: dict[str, LogFile] = {}
        self.streams = streams
        self.carrier: Optional[Carrier] = None
        if streams is not None and streams.group is None:
            self.carrier = Carrier(streams, self.nodes[0], folder, self._complain)
            self.selector.register(self.carrier.fileno(), selectors.EVENT_READ)

    def run(self, attempt: int) -> int:
        """Run one attempt, from the hub's start to the hub's end. Returns its exit code."""
        self.exits, self.hub_exit, self.bundled = {}, None, False
        self.at_gate, self.hubs = dict.fromkeys(self.nodes), 0
        os.makedirs(self.path(Files.RUN), exist_ok=True)
        key = self.part.key if self.part else os.urandom(32).hex()
        with open(os.open(self.path(Files.KEY), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(key)
        self.env = {**os.environ, Env.KEY: key, Env.ATTEMPT: str(attempt), Env.TERMINATION: ""}
        if self.plan.time_limit is not None:
            self.limit_at = time.monotonic() + self.plan.time_limit
            self.env[Env.ENDS_AT] = str(time.time() + self.plan.time_limit)
        if self.part is None:  # otherwise the nodes have their own folders and share nothing
            self.env[Env.RESUME_DIR] = self.path(Files.RESUME)
            os.makedirs(self.path(Files.RESUME), exist_ok=True)
        if 0 not in self.nodes:
            self._run_nodes()
            return self._conclude()
        self.hub = self._start(self._hub_words(), {}, self._hub_line, self._hub_ended)
        key_server = self._start_key_server()
        self._until(lambda: self._listening() or self.hub_exit is not None or self.stopping, HUB_START)
        may_start = self._listening() and not self.stopping
        if may_start:
            self._run_nodes()
        self.at_gate = {}
        if self.stopping or not may_start or (self.gate_only and not any(self.exits.values())):
            self.hub.process.terminate()  # it would wait for gates and supervisors that never come
        # Nodes on other machines may still be at work, and the hub with them.
        if not self._until(lambda: self.hub_exit is not None, None if self._is_shared() else HUB_END):
            self.hub.process.kill()
            self._until(lambda: self.hub_exit is not None)
        if key_server is not None:
            key_server.process.kill()
        return self._conclude()

    def comes_back(self, code: int) -> bool:
        """Whether another attempt may follow one that has ended like this."""
        if code in self.plan.retried and not self.stopping:
            return True
        signalled = os.path.exists(self.path(Files.SIGNALLED)) and code in self.plan.retried_after_signal
        return signalled and (self.is_at_limit or not self.stopping)

    def renew(self, text: str) -> None:
        """Get ready for the next attempt, and first print `text` about it."""
        if os.path.exists(self.path(Files.SIGNALLED)):
            line = f"{time.strftime('%H:%M:%S')} the time limit was near: {text}\n".encode()
            self._log(self.path(Files.HUB_LOG), line)
            self._say(line)
        if self.is_at_limit:
            self.stopping, self.is_at_limit, self.kill_at = False, False, None
            with contextlib.suppress(OSError):
                os.unlink(self.path(Files.STOP_REQUEST))

    def _run_nodes(self) -> None:
        for node in self.nodes:
            self._gate(node)
        self._until(lambda: self._all_ended() or self.hub_exit is not None)
        if not self._until(self._all_ended, HUB_END):
            # The hub has its verdict, so a gate that is still there is stopped or frozen.
            for gate in filter(None, self.at_gate.values()):
                gate.process.kill()
            self._until(self._all_ended)

    def _all_ended(self) -> bool:
        return len(self.exits) == len(self.nodes)

    def _trains(self) -> bool:
        return self.supervised and not (self.at_gate or self.exits or self.stopping)

    def _is_shared(self) -> bool:
        return self.plan.nodes > len(self.nodes) and self.hub_exit is None and self._listening()

    def _hub_words(self) -> list[str]:
        if self.part is None:
            # Nodes on one machine only need loopback, and no other machine may reach the hub.
            return ["hub", "--host", "127.0.0.1"]
        return ["hub", "--name", self.part.hub.host]

    def _start_key_server(self) -> Optional[Child]:
        """Start the server that the other nodes ask for the key, if this node has one."""
        if self.part is None or not self.part.key_server:
            return None
        return self._start(["keys", *self.part.key_server], {}, self._hub_line, lambda _: None)

    def _gate(self, node: int) -> None:
        folder = self.path(Files.NODE.format(node=node))
        os.makedirs(folder, exist_ok=True)
        self.at_gate[node] = self._start_node(
            "gate", node, lambda data: self._gate_line(os.path.join(folder, Files.GATE_LOG), data)
        )

    def _gate_line(self, log: str, data: bytes) -> None:
        """Log a gate's lines. On a machine without the hub also print them, except reports to the hub."""
        self._log(log, data)
        if 0 not in self.nodes:
            lines = data.splitlines(keepends=True)
            self._say(b"".join(line for line in lines if not line.startswith(b"{")))

    def _start_node(self, verb: str, node: int, line: Callable[[bytes], None]) -> Child:
        # This is not passed to the hub, which would think that it is a container.
        message = os.environ.get(Env.TERMINATION, "")
        env = {Env.NODE: str(node), Env.HUB: self._where(), Env.TERMINATION: message}
        words, descriptors = [verb], list[int]()
        if verb == "run" and self.streams is not None:
            words, descriptors = self._with_streams(self.streams)
        child = self._start(words, env, line, partial(self._node_ended, verb, node), descriptors)
        for each in descriptors:
            os.close(each)
        return child

    def _with_streams(self, streams: UserStreams) -> tuple[list[str], list[int]]:
        """Return the words for a supervisor whose command runs in the foreground, and descriptors for it."""
        out, err, more = streams.stdout, streams.stderr, [f"--group={streams.group}"]
        if self.carrier is not None:
            out, err = self.carrier.launch_streams()
            more = [f"--carrier={self.carrier.name}"]
        # These are copies: under the usual numbers the supervisor has streams of its own.
        descriptors = [os.dup(streams.stdin), os.dup(out), os.dup(err)]
        if self.carrier is not None:
            self.carrier.handed_over()
        words = ["run", f"--streams={','.join(map(str, descriptors))}", *more]
        if streams.more:
            words.append(f"--descriptors={','.join(map(str, streams.more))}")
        if streams.blocked:
            words.append(f"--blocked={','.join(map(str, streams.blocked))}")
        return words, [*descriptors, *streams.more]

    def _where(self) -> str:
        """Return the hub's addresses for this machine. Raises OSError."""
        if self.part is None:
            with open(self.path(Files.HUB), encoding="utf-8") as file:
                return f"127.0.0.1:{json.load(file)['port']}"
        if self.part.node == 0:
            with open(self.path(Files.HUB_ADDRESS), encoding="ascii") as file:
                return file.read().strip()
        return str(self.part.hub)

    def _node_ended(self, verb: str, node: int, code: int) -> None:
        if verb == "gate":
            self.at_gate.pop(node, None)
            if code < 0 and not self.stopping:
                self._gate_was_killed(node, -code)
                code = Exit.NODE_AT_FAULT
        if verb == "gate" and code == Exit.OK and not self.gate_only and not self.stopping:
            self.supervised = True
            run = self._start_node("run", node, self._output)
            for number in self.early:
                run.process.send_signal(number)
        else:
            self.exits[node] = Exit.STOPPED if self.stopping and verb == "gate" else code

    def _gate_was_killed(self, node: int, number: int) -> None:
        """Write the end of a gate to its log, and to the file of reports that the hub reads."""
        from ddplaunch.agent.platforms import scheduler_log

        sentence = f"the gate of node {node} was killed by signal {number}"
        hint = "`dmesg` shows whether memory ran out; otherwise the signal came from outside"
        verdict = Verdict.of("node-missing", sentence, "gate", nodes=[node], hint=hint)
        log = os.path.join(self.path(Files.NODE.format(node=node)), Files.GATE_LOG)
        self._gate_line(log, f"{time.strftime('%H:%M:%S')} {sentence}\n".encode())
        report = scheduler_log.report_line(scheduler_log.UnreachedReport(node, math.inf, verdict))
        self._log(self.path(Files.GATES), f"{report}\n".encode())

    def _conclude(self) -> int:
        """Return the exit code: the hub's or, if the hub died without one, the worst that a node reported."""
        code = self.hub_exit
        if self.gate_only or code is None or code < 0 or code in (1, Exit.UNUSABLE):
            nodes = [each if each >= 0 else Exit.WORKER_FAILED for each in self.exits.values()]
            code = Exit.STOPPED if self.stopping else max(nodes, default=Exit.UNUSABLE)
            if not self.gate_only and self.part is None:
                from ddplaunch.agent.hub import recovery

                return recovery.conclude(self.plan, self.folder, code)
        try:
            status = codec.read(JobStatus, self.path(Files.STATUS))
        except (OSError, codec.ContractError):
            if self.part is None:
                return code
            status = self._own_status()
        if (status.phase, status.exit_code) != (Phase.ENDED, code):
            now = time.time()
            status = dataclasses.replace(status, phase=Phase.ENDED, exit_code=code, since=now, updated=now)
            with contextlib.suppress(OSError):  # on a full disk the exit code is all that is left
                codec.write(self.path(Files.STATUS), status)
        return code

    def note_lost(self, lost: str, code: int) -> None:
        """Write what was lost into the job's status, which then counts as no success."""
        with contextlib.suppress(OSError, codec.ContractError):  # it may be on the full disk itself
            status = codec.read(JobStatus, self.path(Files.STATUS))
            now = time.time()
            status = dataclasses.replace(status, exit_code=code, output_lost=lost, updated=now)
            codec.write(self.path(Files.STATUS), status)

    def _own_status(self) -> JobStatus:
        """Return a status with what this node knows, for when no hub has written one."""
        now = time.time()
        attempt = int(self.env[Env.ATTEMPT])
        return JobStatus(
            self.plan.job, attempt, Phase.STARTING, now, [], now, now, gate_passed=self.supervised
        )

    # --------------------------------------------------------------- children

    def _start(
        self,
        words: list[str],
        env: dict[str, str],
        line: Callable[[bytes], None],
        ended: Callable[[int], None],
        descriptors: Collection[int] = (),
    ) -> Child:
        child = Child([*words, "--folder", self.folder], {**self.env, **env}, line, ended, descriptors)
        self.children.append(child)
        self.selector.register(child.pipe, selectors.EVENT_READ, child)
        return child

    def _hub_ended(self, code: int) -> None:
        """Start the hub again if it was killed with its parent. The gates will reconnect to it."""
        if code < 0 and self.at_gate and self.hubs < HUBS and self._listening() and not self.stopping:
            self.hubs += 1
            with open(self.path(Files.HUB), encoding="utf-8") as file:
                port = json.load(file)["port"]
            words = [*self._hub_words(), "--again", f"--port={port}"]
            self.hub = self._start(words, {}, self._hub_line, self._hub_ended)
        else:
            self.hub_exit = code

    def _kill_stopped_hub(self) -> None:
        """Kill a hub at the gate that a signal has stopped. Its parent, or we, will start it again."""
        hub = (
            [self.hub.process.pid, *proc.children(self.hub.process.pid)] if self.hub and self.at_gate else []
        )
        stopped = [pid for pid in hub if (stat := proc.stat(pid)) is not None and stat.state == "T"]
        if not stopped:
            self.hub_ran = time.monotonic()
        elif time.monotonic() - self.hub_ran > HUB_STOPPED:
            for pid in stopped:
                processes.send(pid, signal.SIGKILL)

    def _until(self, happened: Callable[[], bool], seconds: Optional[float] = None) -> bool:
        """Copy output and pass signals on until `happened()`. Returns False if the seconds ran out."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not happened():
            if deadline is not None and time.monotonic() > deadline:
                return False
            for entry, _ in self.selector.select(_CALM if self._trains() else _POLL):
                child: Optional[Child] = entry.data  # None: a signal has come, or output
                if child is not None and not child.drain():
                    self.selector.unregister(child.pipe)
            for child in [each for each in self.children if each.process.poll() is not None]:
                self.children.remove(child)
                if child.pipe in self.selector.get_map():
                    self.selector.unregister(child.pipe)
                child.close()
            if self.carrier is not None:
                self.carrier.carry()
            self._kill_stopped_hub()
            self._pass_signals()
        return True

    def _pass_signals(self) -> None:
        for received in self.signals.read():
            if self._is_unwanted(received.number):
                self._send(received, "run")  # its supervisor knows whether the command has a handler
            else:
                self._pass_signal(received)
        if self.pausing > time.monotonic():
            self._pause()
        if time.monotonic() > self.limit_at:
            self._reach_limit()
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            self.kill_at = None
            end_all()

    def _pass_signal(self, received: Received) -> None:
        number = received.number
        if number in PAUSES:
            self.pausing = time.monotonic() + STOPPED
            self._send(received, "run")
        elif number == signal.SIGCONT:
            self._resume()
        elif number not in _ENDS or (number in _ENDS_AT_GATE and self.supervised):
            # The command itself knows what the signal means. A gate has no use for it.
            if not self._send(received, "run"):
                self.early.append(number)
        elif not self.stopping:
            self.stopping = True
            self.early.clear()
            if self.plan.launch or self._is_final():
                self.kill_at = time.monotonic() + STOP_GRACE
            if not self._send(received, "run"):
                self._send(Received(signal.SIGTERM))
        else:
            self.is_at_limit = False
            if self._is_final() and self.kill_at is None:
                self.kill_at = time.monotonic() + STOP_GRACE
            if number == signal.SIGINT:
                hurried = time.monotonic() + HURRIED
                self.kill_at = hurried if self.kill_at is None else min(self.kill_at, hurried)
            self._send(received, "run")

    def _reach_limit(self) -> None:
        """End the attempt in the way a scheduler does."""
        self.limit_at = math.inf
        if self.stopping or self._all_ended() or self.plan.time_limit is None:
            return
        self.is_at_limit = True
        who = f"the time limit of {phrases.span(self.plan.time_limit)}"
        with contextlib.suppress(OSError):  # otherwise it is reported as a signal
            codec.write(self.path(Files.STOP_REQUEST), StopRequest(signal.SIGTERM, who, final=True))
        self._pass_signal(Received(signal.SIGTERM))

    def must_stop(self) -> bool:
        """Whether a signal has asked for the end, even in the last moments."""
        came = [each.number for each in self.signals.read()]
        self.stopping = self.stopping or any(each in _ENDS and not self._is_unwanted(each) for each in came)
        return self.stopping

    def _is_unwanted(self, number: int) -> bool:
        """Whether our caller ignores the signal. As long as the command has no handler, it ignores it too."""
        return number != signal.SIGCONT and is_ignored(number) and not self._is_final()

    def _is_final(self) -> bool:
        """Whether it is `ddplaunch cancel` that asks for the end."""
        with contextlib.suppress(OSError, codec.ContractError):
            return codec.read(StopRequest, self.path(Files.STOP_REQUEST)).final
        return False

    def _send(self, received: Received, verb: str = "") -> bool:
        """Send a signal to all children, or to those with one verb. Returns whether there is any."""
        over = self._all_ended()
        sent = False
        for child in self.children:
            # The hub ends by itself after the nodes, and they need it until then.
            if (over or child.ended != self._hub_ended) and verb in ("", child.verb):
                with contextlib.suppress(ProcessLookupError):
                    pass_on(child.process.pid, received.number, of_group=received.to_group)
                sent = True
        return sent

    def _pause(self) -> None:
        """Stop ourselves, the hub and the gates, once Ctrl-Z has stopped the launch commands."""
        runs = [proc.stat(child.process.pid) for child in self.children if child.verb == "run"]
        if all(run is not None and run.state in "Tt" for run in runs):
            self.pausing = 0.0
            for pid in self._others():
                processes.send(pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT, which is passed on

    def _resume(self) -> None:
        self.pausing = 0.0
        for pid in self._others():
            processes.send(pid, signal.SIGCONT)
        self.hub_ran = time.monotonic()
        self._send(Received(signal.SIGCONT), "run")

    def _others(self) -> list[int]:
        """Return those of our processes that are not below a supervisor: the hub's and the gates'."""
        roots = [child.process.pid for child in self.children if child.verb != "run"]
        return [pid for root in roots for pid in (root, *processes.descendants(root))]

    # --------------------------------------------------------------- output

    def _output(self, data: bytes) -> None:
        """Print a supervisor's lines: the ranks' and its own; only its own if there is a carrier."""
        if self.carrier is not None:
            self.carrier.say(data, keep=True)
        else:
            self._log(self.path(Files.OUTPUT), data)
            self.console.write(data)

    def _say(self, data: bytes) -> None:
        if self.carrier is not None:
            self.carrier.say(data)
        else:
            self.console.write(data)

    def _hub_line(self, data: bytes) -> None:
        """Print the hub's lines, but no bundle, and a verdict only if no supervisor prints it too."""
        self._log(self.path(Files.HUB_LOG), data)
        words = b"" if self.bundled else data.partition(_BUNDLE_MARK)[0]
        self.bundled = self.bundled or _BUNDLE_MARK in data  # the bundle comes last, in several pieces
        if self.supervised:
            lines = words.splitlines(keepends=True)
            words = b"".join(line for line in lines if line[:1].isdigit() and not self._is_repeated(line))
        self._say(words)

    def _is_repeated(self, line: bytes) -> bool:
        """Whether the supervisor of a command in the foreground says the same thing at the same time."""
        if self.streams is None or self.exits:
            return False
        _, _, text = line.decode(errors="replace").partition(" ")
        code, colon, _ = text.partition(": ")
        if text.startswith(
            tuple(f"{phrases.node(n, self.plan.names)} was told to stop: " for n in self.nodes)
        ):
            return True
        from ddplaunch.agent.diagnosis.catalogue import CATALOGUE  # late: most jobs have no verdict

        # Supervisors get no notice about a slow job.
        return bool(colon) and code in CATALOGUE and not code.startswith("slow")

    def _log(self, path: str, data: bytes) -> None:
        if path not in self.logs:
            self.logs[path] = LogFile(path, self._complain)
        self.logs[path].write(data)

    def _complain(self, text: str) -> None:
        self._say(f"ddplaunch: {text}; the job goes on\n".encode())

    def close_logs(self) -> None:
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _listening(self) -> bool:
        return os.path.exists(self.path(Files.HUB))


def end_all() -> None:
    """Kill every descendant. The children of a killed process become ours, which is why this is a loop."""
    left = processes.descendants(os.getpid())
    while left:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
        left = processes.descendants(os.getpid())


class Child:
    """A child process of the agent. `line` gets the lines that it prints, `ended` gets its exit code.

    It inherits `descriptors`.
    """

    def __init__(
        self,
        words: list[str],
        env: dict[str, str],
        line: Callable[[bytes], None],
        ended: Callable[[int], None],
        descriptors: Collection[int] = (),
    ) -> None:
        self.verb = words[0]
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
            pass_fds=descriptors,
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    def drain(self) -> bool:
        """Read what is there, and pass whole lines on. Returns False at the end of the stream."""
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
