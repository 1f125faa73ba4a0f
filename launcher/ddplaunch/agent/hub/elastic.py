"""Jobs that need only some of their nodes: whom they go on without, and how newcomers are let in.

A node that comes after the start waits at its gate. When the job has run for a while, and nothing is amiss,
the hub ends the attempt in good order, with time for a checkpoint; all nodes go back to the gate, and the
next attempt begins with the newcomers. What a newcomer can be blamed for before that, its own checks and
what it has in common with the others, is judged first: the job must not stop for a node that cannot join.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from ddplaunch.agent.contract import REGROUP, CheckIn, Exit, Phase, Standing, Status, Verdict
from ddplaunch.agent.contract.messages import Judged, Message, Waiting
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import PASSES
from ddplaunch.agent.hub.run import RunSession, RunState
from ddplaunch.agent.hub.server import Session
from ddplaunch.agent.system import phrases

if TYPE_CHECKING:
    from ddplaunch.agent.hub.gate import GateSession

ALL = "all nodes"
LEFT_OUT = "the job goes on without it"
WAITS = "waits until the job lets it in"
"""Details of nodes that are not the job's, for people."""


def dispensable(verdicts: Sequence[Verdict], record: JobRecord) -> set[int]:
    """Return the nodes without which no verdict would be left; none where the job cannot do without them.

    A node that differs from node 0, or does not reach it, goes; node 0 has the hub and torchrun's store. Of
    two nodes with a broken path between them the newcomer goes, if one is: the job ran without it.
    """
    plan = record.plan
    blamed = {node for verdict in verdicts for node in verdict.nodes if node} & record.members
    for out in (blamed & record.newcomers, blamed):
        enough = len(record.members - out) >= (plan.min_nodes or plan.nodes)
        if enough and all(out.intersection(verdict.nodes) for verdict in verdicts):
            return out
    return set()


def leave_out(record: JobRecord, out: Set[int], verdicts: list[Verdict]) -> None:
    """Go on without these nodes, and log why."""
    for verdict in record.with_machines(verdicts):
        record.add_event("notice", f"{verdict.code}: {verdict.sentence}")
    record.members -= out
    record.newcomers -= out
    for node in out:
        record.check_ins.pop(node, None)
        record.passed.pop(str(node), None)
        record.links.pop(str(node), None)
        record.update_node(node, phase=Phase.ENDED, detail=LEFT_OUT, standing=Standing.LEFT_OUT)
    if record.agreed is not None:
        record.agreed = replace(record.agreed, nodes=len(record.members))
    record.mesh = [each for each in record.mesh if out.isdisjoint((each.node, each.peer))]
    record.add_event("notice", f"the job goes on without {phrases.nodes(sorted(out), record.plan.names)}")


def describe_members(record: JobRecord) -> str:
    """Return 'all nodes', or 'nodes 0 (n1) and 2 (n3)'."""
    everyone = len(record.members) == record.plan.nodes
    return ALL if everyone else phrases.nodes(sorted(record.members), record.plan.names)


def too_late_answer(record: JobRecord, node: int) -> Judged:
    """Return the answer to a node that the job goes on without."""
    sentence = f"{record.node_name(node)} came when the job had gone on without it"
    return Judged([Verdict.of("node-missing", sentence, "gate", nodes=[node])], Exit.NODE_AT_FAULT)


COMPANY = 5.0
"""Seconds after a newcomer in which others may come, to be let in together."""
_REMIND_EVERY = 3.0
"""Seconds between two messages to a gate that waits."""


class _Newcomer(NamedTuple):
    session: Session
    check_in: CheckIn
    since: float


class Newcomers:
    """The gates that wait while the job runs. Handles no message: check-ins come from the gate's session."""

    takes = ()

    def __init__(
        self, record: JobRecord, run: RunSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._record = record
        self._run = run
        self._clock = clock
        self._waiting: dict[int, _Newcomer] = {}
        self._unjudged: set[int] = set()  # of these; each is judged once for each check-in
        self._back: set[Session] = set()  # gates of members that wait for the next attempt
        self._last = 0.0  # when the last newcomer came
        self._sent = 0.0
        self._gates: Optional[GateSession] = None
        self._calm: Optional[float] = None  # since when the job runs

    def make_wait(self, gates: GateSession, session: Session, check_in: CheckIn) -> bool:
        """Take a gate that has to wait, and return True; False: it is one of those that `gates` awaits."""
        record, node, self._gates = self._record, check_in.node, gates
        if node not in record.nodes:
            return False
        if node in record.members:
            is_over = record.decided == REGROUP
            if is_over:
                self._back.add(session)
            return is_over
        if gates.is_checking_in:
            record.members.add(node)
            record.newcomers.add(node)
            return False
        now, known = self._clock(), self._waiting.get(node)
        if known is None:
            text = f"{record.node_name(node)} has come, and waits until the job can let it in"
            record.add_event("check-in", text, node)
        self._unjudged.add(node)
        self._waiting[node] = _Newcomer(session, check_in, known.since if known else now)
        self._last, self._sent = now, 0.0
        newcomer = Standing.NEWCOMER
        record.update_node(node, phase=Phase.GATE, host=check_in.host, detail=WAITS, standing=newcomer)
        return True

    def _turn_away_unfit(self, now: float) -> None:
        """Turn away newcomers that could not join. A fault that may pass is given its time."""
        if self._gates is None or not self._gates.has_released:
            return
        for node in sorted(self._unjudged):
            session, check_in, since = self._waiting[node]
            if _may_pass(check_in) and now - since < PASSES:
                continue
            self._unjudged.discard(node)
            view = self._gates.known()
            view = replace(view, check_ins={**view.check_ins, node: check_in})
            verdicts = decide.judge(view, self._record.complain)
            if verdicts:
                session.send(Judged(verdicts, CATALOGUE[verdicts[0].code].exit_code))
                self._turn_away(node)

    async def received(self, session: Session, message: Message) -> None:
        """Do nothing: there are no messages for it."""

    async def lost(self, session: Session) -> None:
        self._back.discard(session)
        if self._record.exit_code is None:  # else it is the hub that hangs up
            for node in [node for node, each in self._waiting.items() if each.session is session]:
                self._turn_away(node)

    async def tick(self, now: float) -> None:
        if not self._is_calm():
            self._calm = None
        elif self._calm is None:
            self._calm = now
        if self._record.decided not in (None, REGROUP):
            for node, each in list(self._waiting.items()):
                each.session.send(too_late_answer(self._record, node))
                self._turn_away(node)
        self._turn_away_unfit(now)
        if now - self._sent >= _REMIND_EVERY:
            self._sent = now
            for session in [*self._back, *(each.session for each in self._waiting.values())]:
                session.send(Waiting(held="the job runs, and stops for newcomers when it can"))
        if self._is_time(now):
            who = phrases.nodes(sorted(self._waiting), self._record.plan.names)
            text = f"the job stops, with time for a checkpoint, and goes on with {who}"
            self._record.add_event("notice", text)
            self._run.end(REGROUP, [], None, now)

    async def stop(self, why: str) -> None:
        """Do nothing: the gates that wait end with the job."""

    def _is_time(self, now: float) -> bool:
        """Whether the job has run for as long as it waits for nodes at its start, and no other node comes."""
        if self._calm is None or not self._waiting:
            return False
        ready = not any(_may_pass(each.check_in) for each in self._waiting.values())
        return ready and now - self._last >= COMPANY and now - self._calm >= self._record.plan.gate.timeout

    def _is_calm(self) -> bool:
        """Whether all nodes are at work, and the hub has nothing to look into."""
        run, record = self._run, self._record
        busy = (
            record.verdicts or run.rounds.current or run.ending or run.eviction.has_begun or run.liveness.lost
        )
        all_here = record.members <= run.sessions.nodes and not record.finished
        return run.state == RunState.WATCHING and all_here and not busy

    def _turn_away(self, node: int) -> None:
        del self._waiting[node]
        self._unjudged.discard(node)
        self._record.update_node(node, phase=Phase.ENDED, detail=LEFT_OUT, standing=Standing.LEFT_OUT)
        self._record.add_event("notice", f"{self._record.node_name(node)} does not join", node)


def _may_pass(check_in: CheckIn) -> bool:
    return any(each.status == Status.FAIL and each.patience is not None for each in check_in.checks)
