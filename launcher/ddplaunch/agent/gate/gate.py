"""One node at the gate, from its own checks to the release that lets its supervisor start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import port
from ddplaunch.agent.checks import run as checks
from ddplaunch.agent.checks.context import Context, passed
from ddplaunch.agent.contract import (
    CheckIn,
    CheckResult,
    Exit,
    Files,
    JobPlan,
    JobStatus,
    MeshResult,
    MeshTask,
    RendezvousSettings,
    Status,
    Verdict,
    codec,
)
from ddplaunch.agent.diagnosis import catalogue, verdict_text
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.gate import probe, table
from ddplaunch.agent.gate.reach import HubUnreachedError, Reach
from ddplaunch.agent.platforms import physical_host, scheduler_log, termination
from ddplaunch.agent.system import host_identity, phrases, ports, secrets
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport.endpoints import Endpoint, address_of
from ddplaunch.agent.transport.protocol import Body, Channel, LostError
from ddplaunch.agent.transport.responder import Responder

if TYPE_CHECKING:
    from ddplaunch.agent.gate.smoke import Smoke

_MARGIN = 30.0
"""Seconds beyond our own deadline that the hub, which rules the deadline, may take for its word."""
_SAY_EVERY = 3.0
_ASK = 2.0
"""Seconds for a check that is asked again: the hub waits for our word, too."""
_PAUSE = 0.8
_TELL_EVERY = 10.0
"""Seconds after which the hub hears again of what still stands against us."""


class _StoppedError(BaseException):
    """A signal told us to stop. No Exception, so that no handler for mishaps takes it."""


def main(plan: JobPlan, folder: str, node: int, attempt: int, key: bytes, hub: Sequence[Endpoint]) -> int:
    """Returns `Exit.OK` when this node may start, having written `Files.AGREED` in its folder."""
    for number in STOPPING:
        signal.signal(number, _stop)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # "dump now": there is nothing to dump yet
    gate = Gate(plan, folder, node, attempt, key, hub)
    try:
        code = gate.run()
        if termination.goes_last(node, code):
            time.sleep(termination.FIRST)
    except _StoppedError:
        code = Exit.STOPPED
    except HubUnreachedError as error:
        code = gate.fail([error.verdict])
    termination.write(code, gate.verdicts)
    return code


def _stop(number: int, _: Any) -> None:
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)  # a second one would end us in the midst of our last words
    raise _StoppedError(number)


class Gate:
    """One pass of a node through the gate."""

    def __init__(
        self, plan: JobPlan, folder: str, node: int, attempt: int, key: bytes, hub: Sequence[Endpoint]
    ) -> None:
        self._plan = plan
        self._node = node
        self._started = time.monotonic()
        self._deadline = self._started + plan.gate.timeout
        self._status = os.path.join(folder, Files.STATUS)
        self._folder = os.path.join(folder, Files.NODE.format(node=node))
        self._context = Context(plan, folder, node, attempt, key)
        twin = plan.job if plan.gate.joined else None
        self._reach = Reach(
            node,
            plan.names,
            hub,
            key,
            attempt,
            self._say,
            self._cry,
            self._hub_is_dead,
            twin,
            platforms.named(plan.platform),
        )
        self._responder = Responder(key, attempt, plan.job)
        self._redactor = secrets.redactor(plan.secrets, os.environ)
        self._listener: Optional[socket.socket] = None
        self._results: list[CheckResult] = []
        self._channel: Optional[Channel] = None
        self._smoke: Optional[Smoke] = None
        self._said = 0.0
        self._checked_in = 0.0
        self._asked = 0.0
        self.verdicts: list[Verdict] = []  # as they were told

    def run(self) -> int:
        os.makedirs(self._folder, exist_ok=True)
        checking = threading.Thread(target=self._check, daemon=True)
        checking.start()
        try:
            channel: Optional[Channel] = self._reach.connect(self._deadline)
        finally:
            checking.join(checks.SECONDS + 1)
        self._listen()
        if self._reach.before:
            self._look_again("names")  # what was not known then may be known now
        while True:
            self._channel = channel or self._reach.connect(self._deadline)
            self._channel.redactor = self._redactor
            channel = None
            try:
                self._check_in()
                return self._converse()
            except (LostError, codec.ContractError) as error:
                self._say(f"lost the hub ({error}), trying again")
                time.sleep(_PAUSE)  # one that takes us and drops us again is not to be overrun
            except _StoppedError:
                with contextlib.suppress(LostError):  # so that nobody takes this for the node's fault
                    self._channel.send("leave", {"why": "told to stop"}, timeout=1.0)
                raise
            finally:
                self._channel.close()
                if self._smoke is not None:
                    self._smoke.close()
                    self._smoke = None

    def fail(self, verdicts: list[Verdict]) -> int:
        """Say why; returns the exit code."""
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
            self._results.append(port.check(self._context))  # the job needs one, whatever it skips

    def _listen(self) -> None:
        """Let peers prove their way to this node from now on, to a port like torch's and to the master's."""
        self._listener = ports.listen(None, 0)
        self._responder.listen(self._listener)
        self._context.again = True
        if self._context.master is not None:
            self._responder.listen(self._context.master)

    # ---------------------------------------------------------------- with the hub

    def _check_in(self) -> None:
        """First a word that passes anywhere, then one of a few kB: a black hole swallows only the second."""
        assert self._channel is not None
        assert self._listener is not None
        listening = {paths.RESPONDER: ports.number(self._listener)}
        if self._context.master is not None:
            listening[paths.MASTER] = ports.number(self._context.master)
        facts = {result.check: result.facts for result in self._results}
        facts["hub"] = {
            "round_trip": self._reach.round_trip,
            "met": str(self._reach.met),
            "before": self._reach.before,
            "detours": self._reach.detours,
            "nameless": self._reach.nameless,
        }
        check_in = CheckIn(
            node=self._node,
            host=physical_host.host(),
            nodes=self._plan.nodes,
            nproc_per_node=self._plan.nproc_per_node,
            address=self._address(),
            ports=listening,
            at=time.time(),
            machine=host_identity.machine(),
            netns=host_identity.network(),
            pid=os.getpid(),
            facts=facts,
            # What a check found out is said once, above; with a failure it goes along.
            checks=[r if r.status == Status.FAIL else replace(r, facts={}) for r in self._results],
        )
        self._checked_in = time.monotonic()
        self._channel.send("here", {"node": self._node})
        self._channel.send("check-in", {"check_in": codec.dump(check_in)})

    def _address(self) -> str:
        assert self._channel is not None
        chosen = address_of(self._plan.gate.interface) if self._plan.gate.interface else None
        return chosen or self._channel.local_address

    def _converse(self) -> int:
        """Do what the hub asks until it says how the gate ends. Raises LostError, HubUnreachedError."""
        assert self._channel is not None
        while time.monotonic() < self._deadline + _MARGIN:
            message = self._channel.receive(timeout=1.0 if self._smoke is None else 0.1)
            if self._smoke is not None:
                for kind, body in self._smoke.poll():
                    self._channel.send(kind, body)
            if message is None or message[0] == "waiting":
                self._wait(message[1] if message else {})
                continue
            kind, body = message
            if kind == "mesh":
                self._mesh(codec.load(list[MeshTask], body.get("tasks")))
            elif kind.startswith("smoke"):
                self._do_smoke(kind, body)
            elif kind == "unbind":
                self._give_up_master_port()
                self._channel.send("unbound", {})
            elif kind == "release":
                return self._released(body)
            elif kind == "verdict":
                return self._judged(body)
        detail = f"it said nothing for {_MARGIN:.0f} s beyond the gate's timeout"
        raise HubUnreachedError(self._reach.verdict(self._seconds(), detail))

    def _wait(self, body: Body) -> None:
        now = time.monotonic()
        missing = codec.load(list[int], body.get("missing", []))
        passing = codec.load(list[str], body.get("passing", []))
        seconds = codec.load(float, body.get("seconds", 0))
        if (missing or passing) and now - self._said > _SAY_EVERY:
            self._said = now
            more = f" and {body['more']} more" if body.get("more") else ""
            who = [phrases.nodes(missing, self._plan.names) + more] if missing else []
            self._say(f"waiting for {'; '.join([*who, *passing])} ({seconds:.0f} s)")
        # With a pause, so that what the hub says is not left to pile up while checks take their time.
        if now - self._asked > _PAUSE and any(each.patience is not None for each in self._results):
            self._ask_again()
            self._asked = time.monotonic()

    def _ask_again(self) -> None:
        """Repeat failed checks, which may pass by now; the hub hears of it, or for how long they have not."""
        before = self._results
        self._look_again()
        passed = [new for new, old in zip(self._results, before) if new.status != old.status]
        if passed:
            self._show(f"what was waited for, after {self._seconds():.0f} s", passed)
        if passed or time.monotonic() - self._checked_in > _TELL_EVERY:
            self._check_in()

    def _look_again(self, also: str = "") -> None:
        """Run the checks again whose faults may pass, and the check `also`."""
        held = self._context.master
        self._results = [
            checks.again(self._context, each.check, _ASK) or each
            if each.patience is not None or each.check == also
            else each
            for each in self._results
        ]
        if self._context.master is not held and self._context.master is not None:
            self._responder.listen(self._context.master)

    def _mesh(self, tasks: list[MeshTask]) -> None:
        assert self._channel is not None
        results = probe.run(self._node, tasks, self._context.key, self._context.attempt)
        told, passed = paths.parted(results)
        self._channel.send("mesh-results", {"results": codec.dump(told), "passed": passed})
        self._show(
            "the way to the peers",
            [_summary([r for r in results if r.what not in paths.BESIDE], self._plan.names)],
        )

    def _do_smoke(self, kind: str, body: Body) -> None:
        from ddplaunch.agent.gate import smoke  # which most jobs do without

        if kind == "smoke":
            self._say("smoke test: all ranks import torch")
            self._deadline += smoke.SECONDS
            agreed = codec.load(RendezvousSettings, body.get("agreed"))
            backends = codec.load(list[str], body.get("backends"))
            self._smoke = smoke.Smoke(self._context, self._folder, agreed, backends, self._show)
        elif self._smoke is not None:
            self._smoke.told(kind, body)

    def _give_up_master_port(self) -> None:
        if self._context.master is not None:
            self._responder.close(self._context.master)
            self._context.master = None

    def _released(self, body: Body) -> int:
        agreed = codec.load(RendezvousSettings, body.get("agreed"))
        codec.write(os.path.join(self._folder, Files.AGREED), agreed)
        for note in codec.load(list[str], body.get("notes", [])):
            self._say(f"note: {note}")
        self._say(
            f"gate passed in {self._seconds():.1f} s; node 0 is {agreed.master_addr}:{agreed.master_port}"
        )
        return Exit.OK

    def _judged(self, body: Body) -> int:
        verdicts = catalogue.load_verdicts(body.get("verdicts"))
        code = catalogue.load_exit_code(body.get("exit_code"))
        if verdicts:
            self.fail(verdicts)
        else:
            self._say("the job was told to stop")
        return code

    # ---------------------------------------------------------------- words

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _say(self, text: str) -> None:
        self._print(f"{time.strftime('%H:%M:%S')} {printable(text)}")

    def _print(self, text: str) -> None:
        print(self._redactor.hide(text), flush=True)

    def _cry(self, verdict: Verdict, seconds: float) -> None:
        """Our output may take a way that leads to the hub, or to whoever has started the job."""
        print(scheduler_log.line(scheduler_log.UnreachedReport(self._node, seconds, verdict)), flush=True)

    def _hub_is_dead(self) -> Optional[Verdict]:
        """Return the verdict of the hub on this node if it cannot listen: no gate can ask it."""
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
            self._say(title)
            self._print("\n".join(table.rows(results, sys.stdout.isatty())))


def _summary(results: list[MeshResult], names: list[str]) -> CheckResult:
    bad = [result for result in results if result.outcome != "ok"]
    slowest = max((result.seconds for result in results), default=0.0)
    if not bad:
        return passed("mesh", f"{len(results)} paths to peers pass, the slowest in {slowest * 1000:.0f} ms")
    return CheckResult(
        "mesh",
        Status.FAIL,
        f"{len(bad)} of {len(results)} paths fail, first {phrases.node(bad[0].peer, names)} at "
        f"{bad[0].address} port {bad[0].port}: {bad[0].outcome}",
    )
