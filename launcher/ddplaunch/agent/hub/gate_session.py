"""The hub's side of the gate: membership, mesh, then one release or one verdict for all nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable
from typing import Callable, Optional

from ddplaunch.agent.contract import CheckIn, Exit, JobPlan, MeshResult, Phase, Status, Verdict, codec
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide as rules
from ddplaunch.agent.diagnosis.gate import interfaces, ip_families, paths
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.hub import mesh_plan, rendezvous_settings
from ddplaunch.agent.hub.gate_states import ENDS, NEXT, GateState
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import Membership
from ddplaunch.agent.hub.preliminary import PreliminaryVerdicts
from ddplaunch.agent.hub.server import Session, tell
from ddplaunch.agent.hub.smoke_session import SmokeTest
from ddplaunch.agent.transport.protocol import Body

MESH_SECONDS = 20.0
"""For all probes of all nodes; each takes 11 s at the very most."""
_REPORTS = 200
"""Nodes that are given a second more: they wait for their turn, and their results for theirs."""
LINGER = 2.0
"""Seconds for everybody to read the verdict before the hub ends."""
_SOON = 1.0
"""Seconds of trying paths after which it is told what stands anyway; most take less, and then all is told."""
_LISTEN_EVERY = 0.5
_WAITING_EVERY = 1.0
_EASY = 500
"""Gates that are told every second whom they wait for; of more, so many each second."""
_NAMED = 64
"""Missing nodes, or facts of a verdict, that each node hears of; the hub's own files have them all."""


class GateSession:
    """Sessions of gates, from `here` to `release` or `verdict`."""

    kinds = frozenset({"here", "check-in", "mesh-results", "unbound", "leave"}) | SmokeTest.kinds

    def __init__(
        self,
        plan: JobPlan,
        record: JobRecord,
        gate_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._gate_only = gate_only
        self._record = record
        self._clock = clock
        self._roll = Membership(plan, record, clock)
        self._preliminary = PreliminaryVerdicts(record)
        self._gates: dict[int, Session] = {}
        self._audience: set[Session] = set()  # who is to hear how it ends, strays included
        self._foreseen: list[Verdict] = []  # stands already while the paths are tried
        self._listened = 0.0
        self._told = 0.0
        self._noted: set[str] = set()
        self._reported: set[int] = set()
        self._notes: list[str] = []  # as they are told with the release
        self._library: list[MeshResult] = []  # paths beside the mesh
        self._mends: dict[int, interfaces.InterfaceFix] = {}
        self._smoke = SmokeTest(record)
        self.state = GateState.CHECKING_IN
        self._end: Optional[tuple[float, int]] = None
        self._resumed = False

    def resume(self) -> None:
        """Go on in the place of a hub that was killed, with what it has left in the record."""
        self._resumed = True
        if self._record.phase not in (Phase.STARTING, Phase.GATE):
            self._enter(GateState.RELEASED)
        elif self._record.decided is not None:
            self._end = self._clock() + LINGER, self._record.decided
            self._enter(GateState.JUDGED)

    # ---------------------------------------------------------------- Desk

    async def received(self, session: Session, kind: str, body: Body) -> None:
        if kind == "here":
            session.node = codec.load(int, body.get("node"))
            self._roll.announced(session.node)
        elif kind == "check-in":
            self._checked_in(session, codec.load(CheckIn, body.get("check_in")))
        elif kind == "mesh-results":
            results = self._to_gates(codec.load(list[MeshResult], body.get("results")))
            self._results(session, results, codec.load(dict[str, int], body.get("passed", {})))
        elif kind in SmokeTest.kinds:
            self._smoke.received(session, kind, body)
        elif kind == "unbound":
            self._release()
        elif kind == "leave":
            self._leaves(session)
        if self.state != GateState.CHECKING_IN or len(self._gates) == self._plan.nodes:
            # What everybody waits for does not wait for the next tick, to which it is left to fail: a mistake
            # of ours is not the fault of who spoke last, whose connection it would cost.
            with contextlib.suppress(Exception):
                self._act(self._clock())

    async def lost(self, session: Session) -> None:
        node = session.node
        self._audience.discard(session)
        if node is not None and node not in self._gates:
            self._roll.silenced(node)
        if node is None or self._gates.get(node) is not session:
            return
        del self._gates[node]
        self._roll.left(node)
        if self.state in ENDS:
            return
        self._record.check_ins.pop(node, None)
        self._record.node(node, phase=Phase.STARTING, detail="its gate went away")
        self._roll.lost(node)
        if self.state != GateState.CHECKING_IN:
            self._act(self._clock())  # before it comes again, and waits for what the others have had

    async def tick(self, now: float) -> None:
        self._act(now)

    async def stop(self, why: str) -> None:
        if self.state not in ENDS:
            self._record.event("end", f"told to stop ({why}) while nodes were at the gate")
            self._tell_of_stop()

    # ---------------------------------------------------------------- messages

    def _checked_in(self, session: Session, check_in: CheckIn) -> None:
        has_port = self._plan.master_port is not None or paths.MASTER in check_in.ports
        if check_in.node == 0 and not has_port and all(r.status != Status.FAIL for r in check_in.checks):
            raise codec.ContractError("node 0 has no port for the master, and does not say why")
        session.node = node = check_in.node
        self._audience.add(session)
        if self.state == GateState.JUDGED:
            self._send_verdict([session])
            return
        if self._is_stray(session, check_in):
            self._roll.stray(check_in)
            return
        hub = {**check_in.facts.get("hub", {}), "received": time.time(), "reached_at": session.local}
        check_in = dataclasses.replace(check_in, facts={**check_in.facts, "hub": hub})
        self._gates[node] = session
        self._roll.came(check_in)
        self._record.check_ins[node] = check_in
        self._record.enter(Phase.GATE)
        self._record.node(node, phase=Phase.GATE, host=check_in.host, detail="")
        if self.state == GateState.RELEASED and self._record.agreed is not None:
            self._send_release([session])  # its gate was started again after the others had gone on

    def _is_stray(self, session: Session, check_in: CheckIn) -> bool:
        """A place that the job does not have, or that another living process holds."""
        holder = self._record.check_ins.get(check_in.node)
        if not 0 <= check_in.node < self._plan.nodes:
            return True
        if holder is None or self._gates.get(check_in.node) in (None, session):
            return False
        return (holder.machine, holder.netns, holder.pid) != (check_in.machine, check_in.netns, check_in.pid)

    def _results(self, session: Session, results: list[MeshResult], passed: dict[str, int]) -> None:
        if session.node is not None and self.state == GateState.MESHING:
            told, more = paths.parted(results)
            self._reported.add(session.node)
            self._record.mesh += told
            self._record.passed[str(session.node)] = {**passed, **more}

    def _to_gates(self, results: list[MeshResult]) -> list[MeshResult]:
        """Return the results of paths to gates; the others are about further addresses."""
        self._library += [each for each in results if each.what in paths.BESIDE]
        return [each for each in results if each.what not in paths.BESIDE]

    def _leaves(self, session: Session) -> None:
        """Told to stop from outside. When the last one leaves, so does the job."""
        node = session.node
        if node is not None and self._gates.get(node) is session:
            del self._gates[node]
            self._roll.left(node)
            self._roll.stopped(node)
        if not self._gates and self.state not in ENDS:
            self._tell_of_stop()

    # ---------------------------------------------------------------- states

    def _enter(self, state: GateState) -> None:
        assert state in NEXT[self.state], (self.state, state)
        self.state = state

    def _act(self, now: float) -> None:
        """Do what is due in the present state."""
        {
            GateState.CHECKING_IN: self._await_check_ins,
            GateState.MESHING: self._await_mesh,
            GateState.SMOKING: self._await_smoke_test,
            GateState.UNBINDING: self._await_unbinding,
            GateState.RELEASED: self._linger_after_release,
            GateState.JUDGED: self._linger_after_verdict,
        }[self.state](now)

    def _await_check_ins(self, now: float) -> None:
        if self._record.phase not in (Phase.STARTING, Phase.GATE):
            # This hub was started again, and supervisors have joined: the gate is past.
            self._enter(GateState.RELEASED)
            return
        if now - self._listened >= _LISTEN_EVERY:
            self._listened = now
            self._roll.overhear()
        look = self._roll.look(now)
        awaited = {*look.missing, *(node for node, _ in look.passing)}
        self._record.wait_for(awaited if self._gates else [])
        if look.verdicts:
            self._tell(look.verdicts)
            return
        if not awaited:
            self._foreseen = look.foreseen or []
            self._begin_mesh(now)
            return
        if look.foreseen is not None:
            self._preliminary.tell(look.foreseen)
        if now - self._told >= max(_WAITING_EVERY, len(self._gates) / _EASY):
            self._told = now
            passing = [self._roll.awaited(node, result) for (node, _), result in look.passing.items()]
            body = {"missing": look.missing[:_NAMED], "more": len(look.missing[_NAMED:])}
            seconds = round(now - self._roll.opened, 1)
            tell(self._gates.values(), "waiting", {**body, "passing": passing[:_NAMED], "seconds": seconds})

    def _begin_mesh(self, now: float) -> None:
        check_ins = self._record.check_ins
        self._record.wait_for([])
        self._note("check-in")
        self._mesh_began = now
        self._mesh_deadline = now + MESH_SECONDS + self._plan.nodes / _REPORTS
        self._enter(GateState.MESHING)
        if not self._plan.gate.enabled or "mesh" in self._plan.gate.skip:
            self._reported = set(self._gates)
            return
        tasks = mesh_plan.tasks(self._plan, check_ins, self._addresses())
        plain = {task: codec.dump(task) for task in {each for some in tasks.values() for each in some}}
        number = sum(map(len, tasks.values()))
        many = f"{number} path{'s' * (number != 1)}"
        self._record.event("mesh", f"all nodes are here; they try {many} to each other")
        for node, session in self._gates.items():
            more = interfaces.tasks(tasks[node], check_ins)
            more += ip_families.tasks(tasks[node], check_ins[node])
            session.send("mesh", {"tasks": [plain[task] for task in tasks[node]] + codec.dump(more)})

    def _note(self, kind: str) -> None:
        """Print what people should know although the job can run, each once."""
        for note in self._known_notes():
            if note not in self._noted:
                self._noted.add(note)
                self._record.event(kind, f"note: {note}")

    def _await_mesh(self, now: float) -> None:
        if self._is_broken_up():
            return
        if len(self._reported) < self._plan.nodes and now < self._mesh_deadline:
            if now - self._mesh_began > _SOON:
                self._preliminary.tell(self._foreseen)
            return
        verdicts = self._judge(missing=[n for n in range(self._plan.nodes) if n not in self._reported])
        if verdicts:
            self._tell(verdicts)
            return
        self._preliminary.tell([])
        self._note("mesh")
        view = self._known()
        self._mends = interfaces.mends(view)
        agreed = rendezvous_settings.agree(self._plan, self._record.check_ins, self._addresses())
        self._record.agreed = interfaces.for_all(agreed, self._mends, view)
        if self._plan.gate.enabled and self._plan.gate.smoke_test:
            self._enter(GateState.SMOKING)
            self._send_agreed(self._gates.values(), "smoke", self._smoke.begin(now, view))
        else:
            self._unbind(now)

    def _await_smoke_test(self, now: float) -> None:
        """All ranks add up for once, where the job asks for it."""
        if self._is_broken_up():
            return
        verdicts = self._smoke.step(now, self._known(), self._gates)
        if verdicts:
            self._tell(verdicts)
        elif verdicts is not None:
            self._unbind(now)

    def _unbind(self, now: float) -> None:
        self._enter(GateState.UNBINDING)
        self._mesh_deadline = now + LINGER
        if 0 in self._gates:
            self._gates[0].send("unbind", {})

    def _await_unbinding(self, now: float) -> None:
        """Node 0 gives up the master port before anybody's trainer may connect to it."""
        if not self._is_broken_up() and now > self._mesh_deadline:
            self._release()

    def _is_broken_up(self) -> bool:
        """Whether somebody has gone, whatever he had done by then: the others would wait for him."""
        gone = len(self._gates) < self._plan.nodes
        if gone and not self._roll.is_ending():
            self._tell(self._judge(missing=[n for n in range(self._plan.nodes) if n not in self._gates]))
        return gone

    def _linger_after_release(self, now: float) -> None:
        """Finish the gate; where it was all there is to do, the hub ends last."""
        if self._gate_only and (not self._gates or now > self._mesh_deadline + LINGER):
            self._record.end(Exit.OK)

    def _linger_after_verdict(self, now: float) -> None:
        assert self._end is not None
        # Gates that have not heard it from an earlier hub are about to call.
        if now > self._end[0] or not (self._audience or self._resumed):
            self._record.end(self._end[1])

    # ---------------------------------------------------------------- the two ends

    def _release(self) -> None:
        if self.state == GateState.UNBINDING:
            self._enter(GateState.RELEASED)
            self._record.gate_passed = not self._gate_only
            self._record.enter(Phase.RENDEZVOUS)
            self._record.event("release", f"the way is clear after {self._clock() - self._roll.opened:.1f} s")
            self._notes = self._known_notes()
            self._record.save()  # first: what a gate was let through by, a hub in our place must know
            self._send_release(self._gates.values())

    def _tell(self, verdicts: list[Verdict], exit_code: Optional[int] = None) -> None:
        code = CATALOGUE[verdicts[0].code].exit_code if exit_code is None else exit_code
        verdicts = self._record.placed(verdicts)
        self._enter(GateState.JUDGED)
        self._end = (self._clock() + LINGER, code)
        for verdict in verdicts:
            self._record.event("verdict", f"{verdict.code}: {verdict.sentence}")
        self._record.decide(code)
        self._record.judge(verdicts)
        self._send_verdict(self._audience)

    def _tell_of_stop(self) -> None:
        """Nobody's fault; unless a node went away before, which may be why a scheduler stops the others."""
        lost = sorted(self._roll.vanished)
        self._tell(self._record.verdicts or (self._judge(missing=lost) if lost else []), Exit.STOPPED)

    def _send_verdict(self, sessions: Iterable[Session]) -> None:
        assert self._end is not None
        verdicts = [dataclasses.replace(v, facts=v.facts[:_NAMED]) for v in self._record.verdicts]
        tell(sessions, "verdict", {"verdicts": codec.dump(verdicts), "exit_code": self._end[1]})

    def _send_release(self, sessions: Iterable[Session]) -> None:
        self._send_agreed(sessions, "release", {"notes": self._notes})

    def _send_agreed(self, sessions: Iterable[Session], kind: str, body: Body) -> None:
        agreed = self._record.agreed
        assert agreed is not None
        alike: dict[Optional[interfaces.InterfaceFix], list[Session]] = {}
        for session in sessions:
            alike.setdefault(self._mends.get(session.node or 0), []).append(session)
        for mend, those in alike.items():
            told = interfaces.settle(agreed, mend) if mend else agreed
            tell(those, kind, {"agreed": codec.dump(told), **body})

    # ---------------------------------------------------------------- facts

    def _judge(self, missing: Optional[list[int]] = None) -> list[Verdict]:
        return rules.judge(self._known(missing), self._record.complain)

    def _known_notes(self) -> list[str]:
        return rules.notes(self._known(), self._record.complain)

    def _known(self, missing: Optional[list[int]] = None) -> GateView:
        return dataclasses.replace(self._roll.view(missing), library=self._library)

    def _addresses(self) -> dict[int, str]:
        check_ins = self._record.check_ins
        return rendezvous_settings.addresses(
            check_ins, [c.facts["hub"]["reached_at"] for c in check_ins.values()]
        )
