"""The gate's desk: roll call, mesh, one verdict or one release, the same for all nodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Callable, Optional

from ddplaunch.agent import codec, paths
from ddplaunch.agent.contract import CheckIn, Exit, Files, JobPlan, MeshResult, Phase, Verdict
from ddplaunch.agent.hub import agree, mesh
from ddplaunch.agent.hub.overheard import Cry, Overheard
from ddplaunch.agent.hub.record import Record
from ddplaunch.agent.hub.server import Session, tell
from ddplaunch.agent.protocol import Body
from ddplaunch.agent.verdicts import gate as rules
from ddplaunch.agent.verdicts import gate_interfaces
from ddplaunch.agent.verdicts.catalogue import CATALOGUE

SETTLE = 2.0
"""Seconds after the last arrival in which more nodes may come before a failure that is certain is told."""
STALL = 4.0
"""Seconds from a node's "here" to its check-in. Both are sent together; only a black hole parts them."""
UNREACHED = 20.0
"""Seconds for which a node has told, by the way of its output, that it does not reach us."""
MESH_SECONDS = 20.0
"""For all probes of all nodes; each takes 11 s at the very most."""
_REPORTS = 200
"""Nodes that are given a second more: they wait for their turn, and their results for theirs."""
LINGER = 2.0
"""Seconds for everybody to read the verdict before the hub ends."""
_WAITING_EVERY = 1.0
_EASY = 500
"""Gates that are told every second whom they wait for; of more, so many each second."""
_NAMED = 64
"""Missing nodes, or facts of a verdict, that each node hears of; the hub's own files have them all."""


class GateDesk:
    """Sessions of gates, from `here` to `release` or `verdict`."""

    kinds = frozenset({"here", "check-in", "mesh-results", "unbound", "leave"})

    def __init__(
        self,
        plan: JobPlan,
        record: Record,
        gate_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._gate_only = gate_only
        self._record = record
        self._clock = clock
        self._opened = clock()
        self._deadline = self._opened + plan.gate.timeout
        self._gates: dict[int, Session] = {}
        self._came: dict[int, float] = {}  # node -> when it checked in first
        self._here: dict[int, float] = {}  # node -> since when its check-in is awaited
        self._strays: list[CheckIn] = []
        self._vanished: set[int] = set()
        self._audience: set[Session] = set()  # who is to hear how it ends, strays included
        self._arrived = self._opened
        self._overheard = Overheard(record.path(Files.GATES))
        self._cries: dict[int, Cry] = {}  # the last one of each node that does not reach us
        self._known: Optional[list[Verdict]] = None  # what stands against the job so far; None: look again
        self._told = 0.0
        self._noted: set[str] = set()
        self._reported: set[int] = set()
        self._notes: list[str] = []  # as they are told with the release
        self._library: list[MeshResult] = []  # paths to where a peer's NCCL or Gloo will listen
        self._mends: dict[int, gate_interfaces.Mend] = {}
        self._step: Callable[[float], None] = self._roll_call
        self._end: Optional[tuple[float, int]] = None

    # ---------------------------------------------------------------- Desk

    async def received(self, session: Session, kind: str, body: Body) -> None:
        if kind == "here":
            session.node = codec.load(int, body.get("node"))
            self._here[session.node] = self._clock()
        elif kind == "check-in":
            self._checked_in(session, codec.load(CheckIn, body.get("check_in")))
        elif kind == "mesh-results":
            results = self._to_gates(codec.load(list[MeshResult], body.get("results")))
            self._results(session, results, codec.load(dict[str, int], body.get("passed", {})))
        elif kind == "unbound":
            self._release()
        elif kind == "leave":
            self._leaves(session)
        if self._step != self._roll_call or len(self._gates) == self._plan.nodes:
            self._step(self._clock())  # what everybody waits for does not wait for the next tick

    async def lost(self, session: Session) -> None:
        node = session.node
        self._audience.discard(session)
        if node is None or self._gates.get(node) is not session:
            return
        del self._gates[node]
        if self._step in (self._released, self._judged):
            return
        self._vanished.add(node)
        self._known = None
        self._arrived = self._clock()
        self._record.check_ins.pop(node, None)
        self._record.node(node, phase=Phase.STARTING, detail="its gate went away")
        self._record.event(
            "waiting", f"{self._record.node_name(node)} went away before the gate was through", node
        )

    async def tick(self, now: float) -> None:
        self._step(now)

    async def stop(self, why: str) -> None:
        if self._step not in (self._released, self._judged):
            self._record.event("end", f"told to stop ({why}) while nodes were at the gate")
            self._tell_of_stop()

    # ---------------------------------------------------------------- messages

    def _checked_in(self, session: Session, check_in: CheckIn) -> None:
        session.node = node = check_in.node
        self._known = None
        self._here.pop(node, None)
        self._cries.pop(node, None)
        self._audience.add(session)
        if self._step == self._judged:
            self._send_verdict([session])
            return
        if self._is_stray(session, check_in):
            self._strays.append(check_in)
            self._record.event(
                "check-in", f"{check_in.host} also claims to be {self._record.node_name(node)}", node
            )
            return
        hub = {**check_in.facts.get("hub", {}), "received": time.time(), "reached_at": session.local}
        check_in = dataclasses.replace(check_in, facts={**check_in.facts, "hub": hub})
        if node not in self._gates:
            self._arrived = self._clock()
            who = self._record.node_name(node)
            self._record.event("check-in", f"{who} checked in: {check_in.host}", node)
        self._gates[node] = session
        self._came.setdefault(node, self._clock())
        self._vanished.discard(node)
        self._record.check_ins[node] = check_in
        self._record.enter(Phase.GATE)
        self._record.node(node, phase=Phase.GATE, host=check_in.host, detail="")
        if self._step == self._released and self._record.agreed is not None:
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
        if session.node is not None and self._step == self._meshing:
            told, more = paths.parted(results)
            self._reported.add(session.node)
            self._record.mesh += told
            self._record.passed[str(session.node)] = {**passed, **more}

    def _to_gates(self, results: list[MeshResult]) -> list[MeshResult]:
        """Those of the mesh itself; the others tell of the libraries' addresses."""
        self._library += [each for each in results if each.what == paths.LIBRARY]
        return [each for each in results if each.what != paths.LIBRARY]

    def _leaves(self, session: Session) -> None:
        """Told to stop from outside. When the last one leaves, so does the job."""
        node = session.node
        if node is not None and self._gates.get(node) is session:
            del self._gates[node]
            self._record.event("end", f"{self._record.node_name(node)} was told to stop at the gate", node)
        if not self._gates and self._step not in (self._released, self._judged):
            self._tell_of_stop()

    # ---------------------------------------------------------------- steps

    def _roll_call(self, now: float) -> None:
        if self._record.phase not in (Phase.STARTING, Phase.GATE):
            self._step = self._released  # we were started again, and supervisors have come: the gate is past
            return
        missing = sorted(set(range(self._plan.nodes)) - set(self._gates))
        self._record.wait_for(missing if self._gates else [])
        verdicts = self._verdicts(now, missing)
        if verdicts:
            self._tell(verdicts)
        elif not missing:
            self._begin_mesh(now)
        elif now - self._told >= max(_WAITING_EVERY, len(self._gates) / _EASY):
            self._told = now
            self._overhear()
            body = {"missing": missing[:_NAMED], "more": len(missing[_NAMED:])}
            tell(self._gates.values(), "waiting", {**body, "seconds": round(now - self._opened, 1)})

    def _verdicts(self, now: float, missing: list[int]) -> list[Verdict]:
        """What can be told now: all of it once waiting is over, before that only what no arrival can cure."""
        late = now > self._deadline
        stalled = [n for n, since in self._here.items() if n in missing and now - since > STALL]
        cries = [cry for node, cry in self._cries.items() if node in missing]
        if late or not missing:
            known = {*stalled, *(cry.node for cry in cries)}
            return self._judge([n for n in missing if n not in known], stalled, cries)
        if now - self._arrived <= SETTLE:
            return []
        if stalled or self._known is None:
            self._known = self._judge(None, stalled, [cry for cry in cries if cry.seconds >= UNREACHED])
        certain = [verdict for verdict in self._known if not self._may_pass(verdict, now)]
        return self._known if certain else []

    def _may_pass(self, verdict: Verdict, now: float) -> bool:
        came = max((self._came.get(node, now) for node in verdict.nodes), default=now)
        return verdict.code in rules.PENDING and now - came < rules.PENDING_SECONDS

    def _overhear(self) -> None:
        for cry in self._overheard.listen():
            if cry.node not in self._gates and 0 <= cry.node < self._plan.nodes:
                if cry.node not in self._cries:
                    self._record.event("waiting", f"it says itself: {cry.verdict.sentence}", cry.node)
                self._cries[cry.node] = cry
                self._known = None

    def _begin_mesh(self, now: float) -> None:
        check_ins = self._record.check_ins
        self._record.wait_for([])
        self._note("check-in")
        self._mesh_deadline = now + MESH_SECONDS + self._plan.nodes / _REPORTS
        self._step = self._meshing
        if not self._plan.gate.enabled or "mesh" in self._plan.gate.skip:
            self._reported = set(self._gates)
            return
        tasks = mesh.tasks(self._plan, check_ins, self._addresses())
        plain = {task: codec.dump(task) for task in {each for some in tasks.values() for each in some}}
        number = sum(map(len, tasks.values()))
        self._record.event("mesh", f"all nodes are here; they try {number} paths to each other")
        for node, session in self._gates.items():
            more = gate_interfaces.tasks(tasks[node], check_ins)
            session.send("mesh", {"tasks": [plain[task] for task in tasks[node]] + codec.dump(more)})

    def _note(self, kind: str) -> None:
        """What people should know although the job can run, each once."""
        for note in rules.notes(self._roll()):
            if note not in self._noted:
                self._noted.add(note)
                self._record.event(kind, f"note: {note}")

    def _meshing(self, now: float) -> None:
        everybody = len(self._gates) == self._plan.nodes
        if everybody and len(self._reported) < self._plan.nodes and now < self._mesh_deadline:
            return
        late = [n for n in range(self._plan.nodes) if n not in self._reported]
        gone = [n for n in late if n not in self._gates]
        if late and not gone and now < self._mesh_deadline:
            return
        verdicts = self._judge(missing=gone or late)
        if verdicts:
            self._tell(verdicts)
            return
        self._note("mesh")
        roll = self._roll()
        self._mends = gate_interfaces.mends(roll)
        agreed = agree.agree(self._plan, self._record.check_ins, self._addresses())
        self._record.agreed = gate_interfaces.for_all(agreed, self._mends, roll)
        self._step = self._unbinding
        self._mesh_deadline = now + LINGER
        if 0 in self._gates:
            self._gates[0].send("unbind", {})

    def _unbinding(self, now: float) -> None:
        """Node 0 gives up the master port before anybody's trainer may connect to it."""
        if now > self._mesh_deadline:
            self._release()

    def _released(self, now: float) -> None:
        """Nothing is left to do at this desk; where the gate was all there is to do, the hub goes last."""
        if self._gate_only and (not self._gates or now > self._mesh_deadline + LINGER):
            self._record.end(Exit.OK)

    def _judged(self, now: float) -> None:
        assert self._end is not None
        if not self._audience or now > self._end[0]:
            self._record.end(self._end[1])

    # ---------------------------------------------------------------- the two ends

    def _release(self) -> None:
        if self._step == self._unbinding:
            self._step = self._released
            self._record.enter(Phase.RENDEZVOUS)
            self._record.event("release", f"the way is clear after {self._clock() - self._opened:.1f} s")
            self._notes = rules.notes(self._roll())
            self._send_release(self._gates.values())
            self._record.save()

    def _tell(self, verdicts: list[Verdict], exit_code: Optional[int] = None) -> None:
        code = CATALOGUE[verdicts[0].code].exit_code if exit_code is None else exit_code
        self._step = self._judged
        self._end = (self._clock() + LINGER, code)
        for verdict in verdicts:
            self._record.event("verdict", f"{verdict.code}: {verdict.sentence}")
        self._record.judge(verdicts)
        self._send_verdict(self._audience)

    def _tell_of_stop(self) -> None:
        """Nobody's fault; unless a node went away before, which may be why a scheduler stops the others."""
        lost = sorted(self._vanished)
        self._tell(self._record.verdicts or (self._judge(missing=lost) if lost else []), Exit.STOPPED)

    def _send_verdict(self, sessions: Iterable[Session]) -> None:
        assert self._end is not None
        verdicts = [dataclasses.replace(v, facts=v.facts[:_NAMED]) for v in self._record.verdicts]
        tell(sessions, "verdict", {"verdicts": codec.dump(verdicts), "exit_code": self._end[1]})

    def _send_release(self, sessions: Iterable[Session]) -> None:
        agreed = self._record.agreed
        assert agreed is not None
        alike: dict[Optional[gate_interfaces.Mend], list[Session]] = {}
        for session in sessions:
            alike.setdefault(self._mends.get(session.node or 0), []).append(session)
        for mend, those in alike.items():
            told = gate_interfaces.settle(agreed, mend) if mend else agreed
            tell(those, "release", {"agreed": codec.dump(told), "notes": self._notes})

    # ---------------------------------------------------------------- facts

    def _judge(
        self,
        missing: Optional[list[int]] = None,
        stalled: Optional[list[int]] = None,
        cries: Optional[list[Cry]] = None,
    ) -> list[Verdict]:
        return rules.judge(self._roll(missing, stalled, cries))

    def _roll(
        self,
        missing: Optional[list[int]] = None,
        stalled: Optional[list[int]] = None,
        cries: Optional[list[Cry]] = None,
    ) -> rules.Roll:
        return rules.Roll(
            plan=self._plan,
            check_ins=self._record.check_ins,
            waited=self._clock() - self._opened,
            missing=missing or [],
            vanished=sorted(self._vanished),
            stalled=stalled or [],
            unreached={cry.node: cry.verdict for cry in cries or []},
            strays=self._strays,
            mesh=self._record.mesh,
            passed=self._record.passed,
            library=self._library,
        )

    def _addresses(self) -> dict[int, str]:
        check_ins = self._record.check_ins
        return agree.addresses(check_ins, [c.facts["hub"]["reached_at"] for c in check_ins.values()])
