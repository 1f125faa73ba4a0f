"""One node at the gate: its checks, its way to the hub, the paths to its peers, then release or verdict.

`agent gate` runs it before the launch command, once on each node. It leaves `Files.AGREED` for the node's
supervisor, even on a disk that has filled up meanwhile. It decides nothing about other nodes: that is the
hub's task.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import port, run
from ddplaunch.agent.checks import run as checks
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import (
    CheckIn,
    CheckResult,
    Exit,
    Files,
    JobPlan,
    JobStatus,
    RendezvousSettings,
    Status,
    Verdict,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import (
    CheckingIn,
    Here,
    Judged,
    Leave,
    Mesh,
    MeshResults,
    Message,
    Release,
    SmokeBegin,
    SmokeGo,
    SmokeStop,
    Unbind,
    Unbound,
    Waiting,
    Way,
)
from ddplaunch.agent.diagnosis import catalogue, verdict_text
from ddplaunch.agent.diagnosis.gate import arrivals, paths
from ddplaunch.agent.gate import probe
from ddplaunch.agent.gate.hub_connection import HubConnection, HubUnreachedError
from ddplaunch.agent.gate.probe import Responder
from ddplaunch.agent.platforms import places, scheduler_log, termination
from ddplaunch.agent.system import phrases, ports, secrets, signals
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport.endpoints import Endpoint, address_of
from ddplaunch.agent.transport.protocol import Channel, LostError

if TYPE_CHECKING:
    from ddplaunch.agent.gate.smoke import Smoke

_AGREED_ROOM = 4096
"""Bytes to reserve on the disk at the beginning: without the file the supervisor cannot even start."""


class AgreedFile:
    """`Files.AGREED` in the node's folder. It reserves space on entry, and frees what was not used."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, Files.AGREED)

    def __enter__(self) -> AgreedFile:
        with contextlib.suppress(OSError):  # the disk check reports it
            os.makedirs(self._folder, exist_ok=True)
            with open(codec.unfinished(self._path), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, _AGREED_ROOM)
        return self

    def write(self, agreed: RendezvousSettings) -> None:
        """Write the file. Raises OSError."""
        os.makedirs(self._folder, exist_ok=True)
        codec.write(self._path, agreed)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        with contextlib.suppress(OSError):
            os.unlink(codec.unfinished(self._path))


_MARGIN = 30.0
"""Seconds beyond our own deadline to wait for the hub's verdict: the hub has the last word on the
deadline."""
_LOG_EVERY = 3.0
_RECHECK = 2.0
"""Seconds for a check that is repeated, because the hub waits for our messages meanwhile."""
_PAUSE = 0.8
_REPORT_EVERY = 10.0
"""Seconds after which the node checks in again if a check still fails."""


_STOPS = (*STOPPING, signal.SIGQUIT)


class _StoppedError(BaseException):
    """A signal stops the gate. It is no Exception, so that no `except Exception` catches it."""


def main(
    plan: JobPlan, folder: str, node: int, attempt: int, key: bytes, hub: Sequence[Endpoint], *, ran: bool
) -> int:
    """Pass the gate. Returns `Exit.OK` if this node may start; then `Files.AGREED` is in its folder.

    `ran`: its ranks ran until now and are going back to the gate.
    """
    for number in signals.FORWARDED - signals.CRASHES - signals.PAUSES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            # The others are for the training, which is not running yet.
            signal.signal(number, _stop if number in _STOPS else lambda *_: None)
    signals.unblock()
    gate = Gate(Context(plan, folder, node, attempt, key, ran=ran), hub)
    code = int(Exit.OK)
    try:
        with gate.agreed_file:
            code = gate.run()
        if termination.goes_last(node, code):
            time.sleep(termination.FIRST)
    except _StoppedError:
        code = code or Exit.STOPPED  # a verdict stays: Kubernetes stops us since another node has ended by it
    except HubUnreachedError as error:
        code = gate.fail([error.verdict])
    termination.write(code, gate.verdicts)
    return termination.of_gate(plan, node, code)


def _stop(number: int, _: Any) -> None:
    for each in _STOPS:
        signal.signal(each, signal.SIG_IGN)  # a second one would interrupt the clean-up
    raise _StoppedError(number)


class Gate:
    """One pass of a node through the gate."""

    def __init__(self, context: Context, hub: Sequence[Endpoint]) -> None:
        plan, node, key, attempt = context.plan, context.node, context.key, context.attempt
        self._context = context
        self._plan = plan
        self._node = node
        self._started = time.monotonic()
        self._deadline = self._started + plan.gate.timeout
        self._status = os.path.join(context.folder, Files.STATUS)
        self._folder = os.path.join(context.folder, Files.NODE.format(node=node))
        self.agreed_file = AgreedFile(self._folder)
        twin = plan.job if plan.gate.joined else None
        self._hub = HubConnection(
            node,
            plan.names,
            hub,
            key,
            attempt,
            self._log,
            self._report,
            self._hub_is_dead,
            twin,
            platforms.named(plan.platform),
            arrivals.parted_by_id(plan),
        )
        self._responder = Responder(key, attempt, plan.job)
        self._redactor = secrets.redactor(plan.hidden, os.environ)
        self._listener: Optional[socket.socket] = None
        self._results: list[CheckResult] = []
        self._channel: Optional[Channel] = None
        self._smoke: Optional[Smoke] = None
        self._logged = 0.0
        self._checked_in = 0.0
        self._rechecked = 0.0
        self._held = ""
        self.verdicts: list[Verdict] = []  # as printed

    def run(self) -> int:
        checking = Task(self._check)
        try:
            channel: Optional[Channel] = self._hub.connect(self._deadline)
        finally:
            checking.join(checks.SECONDS + 1)
        self._listen()
        if self._hub.before:
            self._repeat_checks("names")  # a name that was unknown then may be known by now
        while True:
            self._channel = channel or self._hub.connect(self._deadline)
            self._channel.redactor = self._redactor
            channel = None
            try:
                self._check_in()
                return self._converse()
            except (LostError, codec.ContractError) as error:
                self._log(f"lost the hub ({error}), trying again")
                time.sleep(_PAUSE)  # a hub that drops us at once must not be flooded
            except _StoppedError:
                with contextlib.suppress(LostError):  # otherwise the hub would blame the node
                    self._channel.send(*Leave("told to stop").pack(), timeout=1.0)
                raise
            finally:
                self._channel.close()
                if self._smoke is not None:
                    self._smoke.close()
                    self._smoke = None

    def fail(self, verdicts: list[Verdict]) -> int:
        """Print the verdicts; return the exit code."""
        self.verdicts = verdicts
        self._print("\n".join(verdict_text.block(verdicts, final=True)))
        return catalogue.CATALOGUE[verdicts[0].code].exit_code

    # ---------------------------------------------------------------- alone

    def _check(self) -> None:
        if self._plan.gate.enabled:
            self._results = checks.run(self._context)
            here = phrases.node(self._node, self._plan.names)
            self._show(f"gate of {self._plan.job}, {here} of {self._plan.nodes}", self._results)
        if self._node == 0 and self._plan.master_port is None and self._context.master is None:
            self._results.append(
                port.check_port(self._context)
            )  # the job needs one, even if it skips the check

    def _listen(self) -> None:
        """From now on answer peers' probes, at a free port (as torch uses) and at the master port."""
        self._listener = ports.listen(None, 0)
        self._responder.listen(self._listener)
        self._context.again = True
        if self._context.master is not None:
            self._responder.listen(self._context.master)

    # ---------------------------------------------------------------- with the hub

    def _check_in(self) -> None:
        """Send a small message, then the check-in of a few kB: an MTU black hole drops only the second one.

        Raises LostError.
        """
        assert self._channel is not None
        assert self._listener is not None
        listening = {paths.RESPONDER: ports.number(self._listener)}
        if self._context.master is not None:
            listening[paths.MASTER] = ports.number(self._context.master)
        facts = {result.check: result.facts for result in self._results}
        facts["hub"] = {
            "round_trip": self._hub.round_trip,
            "met": str(self._hub.reached),
            "before": self._hub.before,
            "detours": self._hub.detours,
            "nameless": self._hub.nameless,
        }
        check_in = CheckIn(
            node=self._node,
            host=places.host(),
            nodes=self._plan.nodes,
            nproc_per_node=self._plan.nproc_per_node,
            address=self._address(),
            ports=listening,
            at=time.time(),
            machine=places.boot_id(),
            netns=places.network_namespace(),
            pid=os.getpid(),
            facts=facts,
            # `facts` above has the facts of all checks; a failure also keeps its own.
            checks=[r if r.status == Status.FAIL else replace(r, facts={}) for r in self._results],
        )
        self._checked_in = time.monotonic()
        self._send(Here(self._node))
        self._send(CheckingIn(check_in))

    def _send(self, message: Message) -> None:
        """Send a message to the hub. Raises LostError."""
        assert self._channel is not None
        self._channel.send(*message.pack())

    def _address(self) -> str:
        assert self._channel is not None
        chosen = address_of(self._plan.gate.interface) if self._plan.gate.interface else None
        return chosen or self._channel.local_address

    def _converse(self) -> int:
        """Do what the hub asks, and return the gate's exit code. Raises LostError and HubUnreachedError."""
        assert self._channel is not None
        handlers: dict[type[Message], Callable[[Any], Optional[int]]] = {
            Waiting: self._wait,
            Mesh: self._mesh,
            SmokeBegin: self._begin_smoke,
            SmokeGo: self._go_on_with_smoke,
            SmokeStop: self._go_on_with_smoke,
            Unbind: self._give_up_master_port,
            Release: self._released,
            Judged: self._judged,
        }
        while time.monotonic() < self._deadline + _MARGIN:
            received = self._channel.receive(timeout=1.0 if self._smoke is None else 0.1)
            if self._smoke is not None:
                for each in self._smoke.poll():
                    self._send(each)
            message = Waiting() if received is None else messages.load(*received, Way.HUB_TO_GATE)
            code = None if message is None else handlers[type(message)](message)
            if code is not None:
                return code
        detail = f"it sent nothing for {_MARGIN:.0f} s beyond the gate's timeout"
        raise HubUnreachedError(self._hub.verdict(self._seconds(), detail))

    def _wait(self, waiting: Waiting) -> None:
        now = time.monotonic()
        if waiting.held:
            self._deadline = now + self._plan.gate.timeout
            if waiting.held != self._held:
                self._held = waiting.held
                self._log(waiting.held)
        if (waiting.missing or waiting.passing) and now - self._logged > _LOG_EVERY:
            self._logged = now
            more = f" and {waiting.more} more" if waiting.more else ""
            parts = [phrases.nodes(waiting.missing, self._plan.names) + more] if waiting.missing else []
            self._log(f"waiting for {'; '.join([*parts, *waiting.passing])} ({waiting.seconds:.0f} s)")
        # There is a pause, so that the hub's messages do not pile up while checks take their time.
        if now - self._rechecked > _PAUSE and any(each.patience is not None for each in self._results):
            self._recheck()
            self._rechecked = time.monotonic()

    def _recheck(self) -> None:
        """Repeat failed checks that may pass. Check in again when one has passed, or after _REPORT_EVERY."""
        before = self._results
        self._repeat_checks()
        passed = [new for new, old in zip(self._results, before) if new.status != old.status]
        if passed:
            self._show(f"now passing, after {self._seconds():.0f} s", passed)
        if passed or time.monotonic() - self._checked_in > _REPORT_EVERY:
            self._check_in()

    def _repeat_checks(self, also: str = "") -> None:
        """Repeat the checks whose failures may pass, and the check `also`."""
        held = self._context.master
        self._results = [
            checks.again(self._context, each.check, _RECHECK) or each
            if each.patience is not None or each.check == also
            else each
            for each in self._results
        ]
        if self._context.master is not held and self._context.master is not None:
            self._responder.listen(self._context.master)

    def _mesh(self, mesh: Mesh) -> None:
        results = probe.run(self._node, mesh.tasks, self._context.key, self._context.attempt)
        self._send(MeshResults(*paths.parted(results)))
        self._show(
            "paths to the peers",
            [run.summary([r for r in results if r.what not in paths.BESIDE], self._plan.names)],
        )

    def _begin_smoke(self, begin: SmokeBegin) -> None:
        from ddplaunch.agent.gate import smoke  # which most jobs do without

        self._log("smoke test: all ranks import torch")
        self._deadline += smoke.SECONDS
        self._smoke = smoke.Smoke(self._context, self._folder, begin.agreed, begin.backends, self._show)

    def _go_on_with_smoke(self, message: Union[SmokeGo, SmokeStop]) -> None:
        if self._smoke is not None:
            self._smoke.received(message)

    def _give_up_master_port(self, _: Unbind) -> None:
        if self._context.master is not None:
            self._responder.close(self._context.master)
            self._context.master = None
        self._send(Unbound())

    def _released(self, release: Release) -> int:
        agreed = release.agreed
        try:
            self.agreed_file.write(agreed)
        except OSError as error:
            here = phrases.node(self._node, self._plan.names)
            sentence = f"{here}: cannot write to {self._folder}: {error.strerror}"
            return self.fail([Verdict.of("disk-full", sentence, "gate", nodes=[self._node])])
        for note in release.notes:
            self._log(f"note: {note}")
        self._log(
            f"gate passed in {self._seconds():.1f} s; node 0 is {agreed.master_addr}:{agreed.master_port}"
        )
        return Exit.OK

    def _judged(self, judged: Judged) -> int:
        catalogue.check_end(judged.verdicts, judged.exit_code)
        if judged.verdicts:
            self.fail(judged.verdicts)
        else:
            self._log("the job was told to stop")
        return judged.exit_code

    # ---------------------------------------------------------------- output

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _log(self, text: str) -> None:
        self._print(f"{time.strftime('%H:%M:%S')} {printable(text)}")

    def _print(self, text: str) -> None:
        print(self._redactor.hide(text), flush=True)

    def _report(self, report: scheduler_log.UnreachedReport) -> None:
        """Print a report to the scheduler's log, where the hub or the launcher may read it."""
        print(scheduler_log.report_line(report), flush=True)

    def _hub_is_dead(self) -> Optional[Verdict]:
        """Return the verdict of this node's own hub if it could not listen, so that no gate can connect to
        it.
        """
        if self._node != 0 or not termination.wanted():
            return None  # elsewhere its exit ends the job
        try:
            with open(self._status, encoding="utf-8") as file:
                status = codec.load(JobStatus, json.load(file))
        except (OSError, ValueError, codec.ContractError):
            return None
        ended = status.attempt == self._context.attempt and status.exit_code is not None
        return status.verdicts[0] if ended and status.verdicts else None

    def _show(self, title: str, results: list[CheckResult]) -> None:
        if results:
            self._log(title)
            self._print("\n".join(run.rows(results, sys.stdout.isatty())))


def refuse(node: int, verdicts: Sequence[Verdict]) -> int:
    """Print the verdicts and return the exit code of the first one. No check is run."""
    print("\n".join(verdict_text.block(verdicts, final=True)), flush=True)
    code = catalogue.exit_code(verdicts[0])
    if termination.goes_last(node, code):
        time.sleep(termination.FIRST)
    termination.write(code, verdicts)
    return code
