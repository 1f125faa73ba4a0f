"""The hub's side of the gate: membership, mesh, smoke test, then one release or one verdict for all nodes.

`hub` makes a `GateSession`, and the server hands it the messages of the gates. It lets `diagnosis.gate`
decide, and starts nothing itself: what a node has to try goes to that node's gate as a message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Callable, Optional, Union

from ddplaunch.agent.contract import (
    CheckIn,
    Exit,
    JobPlan,
    MeshResult,
    Phase,
    RendezvousSettings,
    SmokeRank,
    Status,
    Verdict,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import (
    Message,
    SmokeBegin,
    SmokeGo,
    SmokeReady,
    SmokeResults,
    SmokeStop,
    Way,
)
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide, interfaces, names, paths, smoke_test
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.hub import membership, mesh_plan
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import NAMED, Membership, Newcomers
from ddplaunch.agent.hub.server import Session, send_all
from ddplaunch.agent.system.resolve import is_loopback
from ddplaunch.agent.text.quantities import count


class GateState(enum.Enum):
    """States of the gate. It ends in RELEASED or JUDGED."""

    CHECKING_IN = "waits for all nodes to check in"
    MESHING = "waits for the results of all paths"
    SMOKING = "waits for the ranks' own collective"
    UNBINDING = "waits for node 0 to give up the master port"
    RELEASED = "has let all nodes pass"
    JUDGED = "has sent the verdict"


NEXT: Mapping[GateState, Set[GateState]] = {
    GateState.CHECKING_IN: {GateState.MESHING, GateState.RELEASED, GateState.JUDGED},  # RELEASED: a later hub
    GateState.MESHING: {GateState.SMOKING, GateState.UNBINDING, GateState.JUDGED},
    GateState.SMOKING: {GateState.UNBINDING, GateState.JUDGED},
    GateState.UNBINDING: {GateState.RELEASED, GateState.JUDGED},
    GateState.RELEASED: set(),
    GateState.JUDGED: set(),
}
ENDS = (GateState.RELEASED, GateState.JUDGED)


MESH_SECONDS = 20.0
"""Seconds for all probes of all nodes; each probe takes 11 s at the very most."""
_REPORTS = 200
"""Nodes for whose probes and results one more second is allowed, because they queue for node 0."""
LINGER = 2.0
"""Seconds that all clients have to read the verdict before the hub ends."""
_SOON = 1.0
"""Seconds into the mesh after which the verdicts known so far are published; most meshes take less."""
_READ_LOG_EVERY = 0.5


class GateSession:
    """Sessions of the gates, from `here` to `release` or `verdict`."""

    takes = messages.by_way(Way.GATE_TO_HUB)

    def __init__(
        self,
        plan: JobPlan,
        record: JobRecord,
        gate_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        newcomers: Optional[Newcomers] = None,
    ) -> None:
        self._plan = plan
        self._gate_only = gate_only
        self._record = record
        self._newcomers = newcomers
        self._clock = clock
        self._membership = Membership(plan, record, clock)
        self._preliminary = PreliminaryVerdicts(record)
        self._gates: dict[int, Session] = {}
        self._audience: set[Session] = set()  # gates that get the verdict, strays included
        self._foreseen: list[Verdict] = []  # known already while paths are being tried
        self._log_read = 0.0
        self._noted: set[str] = set()
        self._reported: set[int] = set()
        self._notes: list[str] = []  # sent with the release
        self._library: list[MeshResult] = []  # paths beside the mesh
        self._fixes: dict[int, interfaces.InterfaceFix] = {}
        self._smoke = SmokeTest(record)
        self.state = GateState.CHECKING_IN
        self._end: Optional[tuple[float, int]] = None
        self._resumed = False

    def resume(self) -> None:
        """Go on in place of a hub that was killed, with what it left in the record."""
        self._resumed = True
        if self._record.phase not in (Phase.STARTING, Phase.GATE):
            self._enter(GateState.RELEASED)
        elif self._record.decided is not None:
            self._end = self._clock() + LINGER, self._record.decided
            self._enter(GateState.JUDGED)

    @property
    def is_checking_in(self) -> bool:
        return self.state == GateState.CHECKING_IN

    @property
    def has_released(self) -> bool:
        return self.state == GateState.RELEASED

    # ---------------------------------------------------------------- handler

    async def received(self, session: Session, message: Message) -> None:
        if isinstance(message, messages.Here):
            session.node = message.node
            self._membership.note_announced(session.node)
        elif isinstance(message, messages.CheckingIn):
            self._take_check_in(session, message.check_in)
        elif isinstance(message, messages.MeshResults):
            self._library += [each for each in message.results if each.what in paths.BESIDE]
            self._take_results(session, message)
        elif isinstance(message, (messages.SmokeReady, messages.SmokeResults)):
            self._smoke.received(session, message)
        elif isinstance(message, messages.Unbound):
            self._release()
        elif isinstance(message, messages.Leave):
            self._take_leave(session)
        if not self._waits_for_others(message):
            # The last message of all is acted on at once. If our own code raises, the next tick deals with
            # it: here the exception would drop the client that sent this message.
            with contextlib.suppress(Exception):
                self._act(self._clock())

    def _waits_for_others(self, message: Message) -> bool:
        """Whether other nodes have yet to send what this one has sent.

        Each of them sends it: to look at all nodes each time would be work that grows with their square.
        """
        if self.state == GateState.CHECKING_IN:
            return len(self._gates) != len(self._record.members)
        is_one_of_many = self.state == GateState.MESHING and isinstance(message, messages.MeshResults)
        return is_one_of_many and len(self._reported) < len(self._record.members)

    async def lost(self, session: Session) -> None:
        node = session.node
        self._audience.discard(session)
        if node is not None and node not in self._gates:
            self._membership.note_silenced(node)
        if node is None or self._gates.get(node) is not session:
            return
        del self._gates[node]
        self._membership.note_left(node)
        if self.state in ENDS:
            return
        self._record.check_ins.pop(node, None)
        self._record.update_node(node, phase=Phase.STARTING, detail="its gate went away")
        self._membership.note_lost(node)
        if self.state != GateState.CHECKING_IN:
            self._act(self._clock())  # before its gate comes again and waits for past messages

    async def tick(self, now: float) -> None:
        self._act(now)

    async def stop(self, why: str) -> None:
        if self.state not in ENDS:
            self._record.add_event("end", f"told to stop ({why}) while nodes were at the gate")
            self._end_stopped()

    # ---------------------------------------------------------------- messages

    def _take_check_in(self, session: Session, check_in: CheckIn) -> None:
        has_port = self._plan.master_port is not None or paths.MASTER in check_in.ports
        if check_in.node == 0 and not has_port and all(r.status != Status.FAIL for r in check_in.checks):
            raise codec.ContractError("node 0 has no port for the master, and does not say why")
        session.node = node = check_in.node
        self._audience.add(session)
        if self.state == GateState.JUDGED:
            self._send_verdict([session])
            return
        if self._newcomers and self._newcomers.make_wait(self, session, check_in):
            return
        if node in self._record.nodes and node not in self._record.members:
            session.send(membership.too_late_answer(self._record, node))
            return
        if self._membership.is_stray(check_in, self._gates.get(node) not in (None, session)):
            self._membership.note_stray(check_in)
            return
        hub = {**check_in.facts.get("hub", {}), "received": time.time(), "reached_at": session.local}
        check_in = dataclasses.replace(check_in, facts={**check_in.facts, "hub": hub})
        self._gates[node] = session
        self._membership.note_check_in(check_in)
        self._record.check_ins[node] = check_in
        self._record.enter(Phase.GATE)
        self._record.update_node(node, phase=Phase.GATE, host=check_in.host, detail="")
        if self.state == GateState.RELEASED and self._record.agreed is not None:
            self._send_release([session])  # its gate was started again after the others had left

    def _take_results(self, session: Session, message: messages.MeshResults) -> None:
        if session.node is not None and self.state == GateState.MESHING:
            kept, more, links = paths.parted(m for m in message.results if m.what not in paths.BESIDE)
            self._reported.add(session.node)
            self._record.mesh += kept
            self._record.passed[str(session.node)] = {**message.passed, **more}
            self._record.links[str(session.node)] = {**message.links, **links}

    def _take_leave(self, session: Session) -> None:
        """Let go of a gate that was stopped from outside. The job ends when the last gate has left."""
        node = session.node
        if node is not None and self._gates.get(node) is session:
            del self._gates[node]
            self._membership.note_left(node)
            self._membership.note_stopped(node)
        if not self._gates and self.state not in ENDS:
            self._end_stopped()

    # ---------------------------------------------------------------- states

    def _enter(self, state: GateState) -> None:
        assert state in NEXT[self.state], (self.state, state)
        self.state = state

    def _act(self, now: float) -> None:
        """Do what is due in the current state."""
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
            # This hub was started again and supervisors have joined, so the gate is over.
            self._enter(GateState.RELEASED)
            return
        if now - self._log_read >= _READ_LOG_EVERY:
            self._log_read = now
            self._membership.read_scheduler_log()
        state = self._membership.look(now)
        awaited = {*state.missing, *(node for node, _ in state.passing)}
        self._record.wait_for(awaited if self._gates else [])
        if state.verdicts:
            self._end_unless_enough(state.verdicts)
            return
        if not awaited:
            self._foreseen = state.foreseen or []
            self._begin_mesh(now)
            return
        if state.foreseen is not None:
            self._preliminary.publish(state.foreseen)
        if (waiting := self._membership.waiting_message(state, now, len(self._gates))) is not None:
            send_all(self._gates.values(), waiting)

    def _begin_mesh(self, now: float) -> None:
        check_ins = self._record.check_ins
        self._record.wait_for([])
        self._note("check-in")
        self._mesh_began = now
        self._mesh_deadline = now + MESH_SECONDS + len(check_ins) / _REPORTS
        self._enter(GateState.MESHING)
        if not self._plan.gate.enabled or "mesh" in self._plan.gate.skip:
            self._reported = set(self._gates)
            return
        tasks = mesh_plan.tasks(self._plan, check_ins, self._addresses())
        number = sum(map(len, tasks.values()))
        who = membership.describe_members(self._record)
        here = "all nodes are here" if who == membership.ALL else f"here: {who}"
        tested = f", testing {count(number, 'connection')} between them" if number else ""
        if len(check_ins) == 1:
            here, tested = "the node is here", ", testing a connection to itself" if number else ""
        self._record.add_event("mesh", f"{here}{tested}")
        taken = interfaces.addresses(check_ins)
        for node, session in self._gates.items():
            more = interfaces.tasks(tasks[node], taken)
            more += names.tasks(tasks[node], check_ins[node])
            session.send(messages.Mesh([*tasks[node], *more]))

    def _note(self, kind: str) -> None:
        """Log notes about a job that can run all the same, each one once."""
        for note in self._known_notes():
            if note not in self._noted:
                self._noted.add(note)
                self._record.add_event(kind, f"note: {note}")

    def _await_mesh(self, now: float) -> None:
        if self._is_broken_up():
            return
        late = sorted(self._record.members - self._reported)
        if late and now < self._mesh_deadline:
            if now - self._mesh_began > _SOON:
                self._preliminary.publish(self._foreseen)
            return
        verdicts = self._judge(missing=late)
        if verdicts:
            self._end_unless_enough(verdicts)
            return
        self._preliminary.publish([])
        self._note("mesh")
        view = self.known()
        self._fixes = interfaces.fixes(view)
        agreed = agree_on_settings(
            self._plan, self._record.check_ins, self._addresses(), self._record.regroups
        )
        self._record.agreed = interfaces.for_all(agreed, self._fixes, view)
        if self._plan.gate.enabled and self._plan.gate.smoke_test:
            self._enter(GateState.SMOKING)
            self._send_agreed(self._gates.values(), self._smoke.begin(now, view))
        else:
            self._unbind(now)

    def _await_smoke_test(self, now: float) -> None:
        """Run the smoke test, if the job asks for it."""
        if self._is_broken_up():
            return
        verdicts = self._smoke.step(now, self.known(), self._gates)
        if verdicts:
            self._end_with(verdicts)
        elif verdicts is not None:
            self._unbind(now)

    def _unbind(self, now: float) -> None:
        self._enter(GateState.UNBINDING)
        self._mesh_deadline = now + LINGER
        if 0 in self._gates:
            self._gates[0].send(messages.Unbind())

    def _await_unbinding(self, now: float) -> None:
        """Wait until node 0 has released the master port: no trainer may connect before that."""
        if not self._is_broken_up() and now > self._mesh_deadline:
            self._release()

    def _is_broken_up(self) -> bool:
        """Whether a node has gone. Then the job ends, because the others would wait for that node."""
        gone = sorted(self._record.members - self._gates.keys())
        if gone and not self._membership.is_ending():
            self._end_unless_enough(self._judge(missing=gone))
        return bool(gone)

    def _linger_after_release(self, now: float) -> None:
        """End the hub once all gates have gone, if the gate was the whole job."""
        if self._gate_only and (not self._gates or now > self._mesh_deadline + LINGER):
            self._record.end(Exit.OK)

    def _linger_after_verdict(self, now: float) -> None:
        assert self._end is not None
        # After a restart, gates that have not heard the verdict will call soon.
        if now > self._end[0] or not (self._audience or self._resumed):
            self._record.end(self._end[1])

    # ---------------------------------------------------------------- the two ends

    def _release(self) -> None:
        if self.state == GateState.UNBINDING:
            self._enter(GateState.RELEASED)
            self._record.gate_passed = not self._gate_only
            self._record.enter(Phase.RENDEZVOUS)
            seconds = self._record.gate_seconds = self._clock() - self._membership.opened
            who = membership.describe_members(self._record)
            left = "" if who == membership.ALL else f" with {who}"
            self._record.add_event("release", f"gate passed in {seconds:.1f} s{left}, starting")
            self._notes = self._known_notes()
            self._record.save()  # before it is sent, because a later hub must know of it
            self._send_release(self._gates.values())

    def _end_unless_enough(self, verdicts: list[Verdict]) -> None:
        """End the job by the verdicts, or go on without the nodes that they blame, if it needs fewer."""
        out = membership.dispensable(verdicts, self._record)
        if not out:
            self._end_with(verdicts)
            return
        gates = [self._gates.pop(node) for node in out if node in self._gates]
        send_all(gates, messages.Judged(verdicts, CATALOGUE[verdicts[0].code].exit_code))
        self._audience.difference_update(gates)
        membership.leave_out(self._record, out, verdicts)
        for node in out:
            self._membership.leave_out(node)
        self._library = [each for each in self._library if out.isdisjoint((each.node, each.peer))]

    def _end_with(self, verdicts: list[Verdict], exit_code: Optional[int] = None) -> None:
        code = CATALOGUE[verdicts[0].code].exit_code if exit_code is None else exit_code
        verdicts = self._record.with_machines(verdicts)
        self._enter(GateState.JUDGED)
        self._end = (self._clock() + LINGER, code)
        for verdict in verdicts:
            self._record.add_event("verdict", f"{verdict.code}: {verdict.sentence}")
        self._record.decide(code)
        self._record.set_verdicts(verdicts)
        self._send_verdict(self._audience)

    def _end_stopped(self) -> None:
        """End a job that was stopped; with a verdict only if a node had gone before, a possible reason."""
        lost = sorted(self._membership.vanished)
        self._end_with(self._record.verdicts or (self._judge(missing=lost) if lost else []), Exit.STOPPED)

    def _send_verdict(self, sessions: Iterable[Session]) -> None:
        assert self._end is not None
        verdicts = [dataclasses.replace(v, because=v.because[:NAMED]) for v in self._record.verdicts]
        send_all(sessions, messages.Judged(verdicts, self._end[1]))

    def _send_release(self, sessions: Iterable[Session]) -> None:
        self._send_agreed(sessions, lambda settings: messages.Release(settings, self._notes))

    def _send_agreed(
        self, sessions: Iterable[Session], message: Callable[[RendezvousSettings], Message]
    ) -> None:
        """Send each node its own settings. Nodes with the same settings get one encoded message."""
        agreed = self._record.agreed
        assert agreed is not None
        alike: dict[Optional[interfaces.InterfaceFix], list[Session]] = {}
        for session in sessions:
            alike.setdefault(self._fixes.get(session.node or 0), []).append(session)
        for fix, recipients in alike.items():
            send_all(recipients, message(interfaces.settle(agreed, fix) if fix else agreed))

    # ---------------------------------------------------------------- facts

    def _judge(self, missing: Optional[list[int]] = None) -> list[Verdict]:
        return decide.judge(self.known(missing), self._record.complain)

    def _known_notes(self) -> list[str]:
        return decide.notes(self.known(), self._record.complain)

    def known(self, missing: Optional[list[int]] = None) -> GateView:
        """Return all that is known of the nodes and of the paths between them."""
        return dataclasses.replace(self._membership.view(missing), library=self._library)

    def _addresses(self) -> dict[int, str]:
        check_ins = self._record.check_ins
        return peer_addresses(check_ins, [c.facts["hub"]["reached_at"] for c in check_ins.values()])


class PreliminaryVerdicts:
    """Verdicts with which the job would end if nothing changed. They are published while they may still pass.

    So you read within seconds what is wrong, and the job still has its minute to recover.
    """

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._stands: list[tuple[str, set[int]]] = []

    def publish(self, verdicts: list[Verdict]) -> None:
        """Report each verdict once, again when its nodes change, and take it back when it no longer holds."""
        before = self._stands
        self._stands = [(verdict.code, set(verdict.nodes)) for verdict in verdicts]
        if self._stands == before:
            return
        verdicts = self._record.with_machines(verdicts)
        for verdict, (code, nodes) in zip(verdicts, self._stands):
            if not any(code == known and nodes & others for known, others in before):
                node = verdict.nodes[0] if len(nodes) == 1 else None
                self._record.add_event("notice", f"{code}: {verdict.sentence}", node)
        self._record.set_verdicts(verdicts)


def peer_addresses(check_ins: dict[int, CheckIn], reached_at: list[str]) -> dict[int, str]:
    """Return the address at which peers reach each node: the node's own end of its connection to the hub.

    Node 0's connection to its own hub often runs over loopback. Its address is then the one at which most
    other nodes have reached the hub (`reached_at`, one per node).
    """
    result = {node: check_in.address for node, check_in in check_ins.items()}
    outside = [address for address in reached_at if not is_loopback(address)]
    if 0 in result and is_loopback(result[0]) and outside:
        result[0] = Counter(outside).most_common(1)[0][0]
    return result


def agree_on_settings(
    plan: JobPlan, check_ins: dict[int, CheckIn], peer_addresses: dict[int, str], regroups: int = 0
) -> RendezvousSettings:
    """Return the settings for all nodes. Only the job file names interfaces; nothing is guessed."""
    why = {}
    master = plan.master_addr or peer_addresses[0]
    why["MASTER_ADDR"] = (
        "the job's plan names it" if plan.master_addr else "node 0 is reached there by the other nodes"
    )
    port = plan.master_port or check_ins[0].ports["master"]
    why["MASTER_PORT"] = (
        "the job's plan names it" if plan.master_port else "free on node 0, where it is chosen"
    )
    env = {}
    if plan.gate.interface:
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            exact = "=" if name.startswith("NCCL") else ""  # NCCL takes a prefix without it, Gloo never does
            env[name] = exact + plan.gate.interface
            why[name] = "gate.interface of the job file"
    elif len({(c.machine, c.netns) for c in check_ins.values()}) == 1 and not _gloo_finds_address(check_ins):
        env["GLOO_SOCKET_IFNAME"] = "lo"
        why["GLOO_SOCKET_IFNAME"] = "all nodes are one machine, whose own name has no address that it can use"
    nodes = len(check_ins) if plan.min_nodes else None
    return RendezvousSettings(master, port, env, why, nodes, regroups or None)


def _gloo_finds_address(check_ins: dict[int, CheckIn]) -> bool:
    """Whether every node can bind an address of its own name. Unknown counts as yes: no variable is set."""
    return all(c.facts.get("names", {}).get("own_bindable", True) for c in check_ins.values())


SMOKE_IMPORT = 75.0
"""Seconds for all gates to report that their ranks have imported torch. Each gate gives up a little earlier.
"""
SMOKE_RUN = 180.0
"""Seconds for all results: a gate reports 20 s after its ranks have stopped moving."""
_SMOKE_GRACE = 2.0
"""Seconds that the other nodes have once one has reported a failure."""
_SMOKE_LAST = 5.0


class _SmokeState(enum.Enum):
    IMPORTING = "the ranks start, and import torch"
    RUNNING = "all ranks run the collective"
    FAILING = "a rank has failed; the others have a moment to report"
    STOPPED = "the hub has stopped the test on the nodes without a result"


class SmokeTest:
    """The smoke test of all nodes. It runs from `begin` until `step` returns its verdicts, if any."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._backends: list[str] = []
        self._ports: dict[str, int] = {}
        self._ready: set[int] = set()
        self._results: dict[int, list[SmokeRank]] = {}
        self._state = _SmokeState.IMPORTING
        self._deadline = 0.0

    def begin(self, now: float, view: GateView) -> Callable[[RendezvousSettings], SmokeBegin]:
        """Start the test. Returns a function from a node's settings to the message that starts it there."""
        self._backends = smoke_test.backends(view)
        self._deadline = now + SMOKE_IMPORT
        self._record.add_event(
            "smoke", f"all ranks import torch, to add up by {' and '.join(self._backends)}"
        )
        return lambda settings: SmokeBegin(settings, self._backends)

    def received(self, session: Session, message: Union[SmokeReady, SmokeResults]) -> None:
        if session.node is None:
            return
        if isinstance(message, SmokeReady):
            self._ready.add(session.node)
            self._ports.update(message.ports)
        else:
            self._results[session.node] = message.ranks

    def step(self, now: float, view: GateView, gates: Mapping[int, Session]) -> Optional[list[Verdict]]:
        """Return the verdicts of the test, an empty list if it has passed; None while it is running."""
        if (
            self._state == _SmokeState.IMPORTING
            and len(self._ready) == view.plan.nodes
            and self._record.agreed
        ):
            self._state, self._deadline = _SmokeState.RUNNING, now + SMOKE_RUN
            send_all(gates.values(), SmokeGo(self._record.agreed.master_addr, self._ports))
        failed = any(rank.stage != "done" for ranks in self._results.values() for rank in ranks)
        if failed and self._state in (_SmokeState.IMPORTING, _SmokeState.RUNNING):
            self._state, self._deadline = _SmokeState.FAILING, min(self._deadline, now + _SMOKE_GRACE)
        late = now > self._deadline
        if late and self._state != _SmokeState.STOPPED:
            self._state, self._deadline, late = _SmokeState.STOPPED, now + _SMOKE_LAST, False
            send_all([s for n, s in gates.items() if n not in self._results], SmokeStop())
        if len(self._results) < view.plan.nodes and not late:
            return None
        ranks = [rank for _, each in sorted(self._results.items()) for rank in each]
        for text in smoke_test.notes(view, ranks, self._backends):
            self._record.add_event("smoke", text)
        return smoke_test.judge(view, ranks, self._backends)
