"""Membership at the gate: nodes that have checked in, nodes that are awaited, and faults that may still pass.

A failure ends the job only when it is certain: it cannot pass, or its patience is used up. The user sees it
earlier, SETTLE seconds after the last check-in. An elastic job needs only some of its nodes, and may go on
without the others.

A node that comes after the start waits at its gate. Once the job has run for a while and nothing is wrong,
the hub ends the attempt properly, with time for a checkpoint. All nodes go back to the gate, and the next
attempt begins with the newcomers. A newcomer's own checks, and what must be the same on it and the others,
are judged first: the job must not stop for a node that cannot join.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import (
    REGROUP,
    CheckIn,
    CheckResult,
    Exit,
    Files,
    JobPlan,
    Phase,
    Standing,
    Status,
    Verdict,
)
from ddplaunch.agent.contract.messages import Judged, Message, Waiting
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import arrivals, decide, hub_unreached
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.hub.closing import TOGETHER
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.run import RunSession, RunState
from ddplaunch.agent.hub.server import Session
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.scheduler_log import SchedulerLog, UnreachedReport
from ddplaunch.agent.system import phrases

if TYPE_CHECKING:
    from ddplaunch.agent.hub.gate import GateSession

SETTLE = 2.0
"""Seconds to wait for more nodes after the last arrival, before a failure is reported."""
STALL = 4.0
"""Seconds from a node's "here" to its check-in. They are sent together, so only a black hole separates them.
"""
UNREACHED = 20.0
"""Seconds for which a node has reported, in its output, that it cannot reach the hub. A name may take longer
to appear."""
PASSES = 60.0
"""Seconds that a fault has to pass while other nodes are awaited anyway: twice as long as a name server
remembers that there was no such name."""
NEWCOMER = 10.0
"""Seconds after the last arrival to wait for a newcomer that was there before the others went back to the
gate."""
LATE = 3.0
"""Seconds of waiting after which a line about it is logged."""
_LOG_EVERY = 30.0
_WAITING_EVERY = 1.0
_EASY = 500
"""Gates that can get a list of the missing nodes every second; with more gates, this many get one each
second."""
NAMED = 64
"""Missing nodes, or facts of a verdict, in a message to each node. The hub's own files have all of them."""

Held = dict[tuple[int, str], CheckResult]


class CheckIns(NamedTuple):
    """The check-ins. They are complete, and the mesh is next, if verdicts, missing and passing are empty."""

    verdicts: list[Verdict]  # certain: the job ends with them
    missing: list[int]
    passing: Held  # faults that may pass, by node and check
    foreseen: Optional[list[Verdict]] = None  # the verdicts if no fault passes; None: too early to say


class Membership:
    """The check-ins of one job, and what they make certain. Times are the monotonic clock."""

    def __init__(self, plan: JobPlan, record: JobRecord, clock: Callable[[], float]) -> None:
        self._plan = plan
        self._record = record
        self._clock = clock
        self.opened = clock()
        self.deadline = self.opened + plan.gate.timeout
        self.strays: list[CheckIn] = []
        self.vanished: set[int] = set()
        self._stopped: dict[int, float] = {}  # node -> when it reported that it was stopped
        self._present: set[int] = set()
        self._first: dict[int, float] = {}  # node -> when it first checked in
        self._announced: dict[int, float] = {}  # node -> since when its check-in has been awaited
        self._begun: Optional[float] = None  # when the first one came
        self._arrived = self.opened  # when the last one did
        self._failing: dict[int, list[CheckResult]] = {}  # what may pass, by node
        self._scheduler_log = SchedulerLog(record.path(Files.GATES), plan.names)
        self._unreached: dict[int, UnreachedReport] = {}  # the last one from each node that does not reach us
        self._late_reports: set[int] = set()  # nodes that reported after the hub could be reached
        self._known: Optional[list[Verdict]] = None  # certain by now; None: judge again
        self._foreseen: list[Verdict] = []  # the verdicts if no fault passes
        self._held: Held = {}
        self._sent = 0.0  # when the last list of missing nodes was sent
        self._logged = self.opened + LATE - _LOG_EVERY

    # ---------------------------------------------------------------- what happens

    def note_announced(self, node: int) -> None:
        """Note that the node's check-in is on its way."""
        self._announced[node] = self._clock()

    def note_silenced(self, node: int) -> None:
        """Note that the node's connection ended before its check-in was complete."""
        self._announced.pop(node, None)

    def note_stray(self, check_in: CheckIn) -> None:
        """Note a gate whose node number is taken, or is not in this job."""
        self._known = None
        self._forget(check_in.node)
        self.strays.append(check_in)
        name = self._record.node_name(check_in.node)
        self._record.add_event("check-in", f"{check_in.host} also claims to be {name}", check_in.node)

    def is_stray(self, check_in: CheckIn, is_held: bool) -> bool:
        """Whether the job has no such node, or another living process already is that node."""
        present = self._record.check_ins.get(check_in.node)
        if not 0 <= check_in.node < self._plan.nodes:
            return True
        if present is None or not is_held:
            return False
        return (present.machine, present.netns, present.pid) != (
            check_in.machine,
            check_in.netns,
            check_in.pid,
        )

    def note_check_in(self, check_in: CheckIn) -> None:
        """Take a node's check-in, whether it is the first one or has changed."""
        node, now, name = check_in.node, self._clock(), self._record.node_name(check_in.node)
        self._known = None
        if node not in self._present:
            late = now - self._begun if self._begun is not None else 0.0
            waited = f", {late:.0f} s after the first" if late >= LATE else ""
            before = check_in.facts.get("hub", {}).get("before")
            met = f"; until then it did not reach the hub: {before}" if before else ""
            self._arrived = now
            host = _beside(name, check_in.host)
            self._record.add_event("check-in", f"{name} checked in{host}{waited}{met}", node)
        self._begun = now if self._begun is None else self._begun
        self._present.add(node)
        self._first.setdefault(node, now)
        self.vanished.discard(node)
        self._stopped.pop(node, None)
        self._forget(node)
        self._compare(check_in, now - self._first[node])

    def note_lost(self, node: int) -> None:
        """Note a node whose gate went away before the release without being stopped."""
        self._failing.pop(node, None)
        self.vanished.add(node)
        self._arrived = self._clock()
        name = self._record.node_name(node)
        self._record.add_event("waiting", f"{name} went away before the gate was through", node)

    def note_stopped(self, node: int) -> None:
        """Note a node whose gate was stopped from outside."""
        self._stopped[node] = self._clock()
        name = self._record.node_name(node)
        self._record.add_event("end", f"{name} was told to stop at the gate", node)

    def is_ending(self) -> bool:
        """Whether all nodes that left were stopped less than TOGETHER ago, so that the others may be next."""
        times = self._stopped.values()
        return bool(times) and not self.vanished and self._clock() - min(times) < TOGETHER

    def leave_out(self, node: int) -> None:
        """Forget a node; the job goes on without it."""
        self.note_left(node)
        self._forget(node)
        self._failing.pop(node, None)
        self.vanished.discard(node)
        self._stopped.pop(node, None)

    def note_left(self, node: int) -> None:
        """Note that the node has no connection any more."""
        self._known = None
        self._present.discard(node)

    def read_scheduler_log(self) -> None:
        """Read the output of missing nodes, if the scheduler keeps it on this machine."""
        now = self._clock()
        for report in self._scheduler_log.listen(now):
            if report.node not in self._present and 0 <= report.node < self._plan.nodes:
                self._unreached[report.node] = report
                if now - self.opened > scheduler_log.SETTLES:
                    self._late_reports.add(report.node)
                self._known = None
        gone = self._scheduler_log.tasks.ended(now)
        for task in gone:
            known = self._unreached.get(task.node)
            if task.node not in self._present and (known is None or known.seconds < math.inf):
                platform = platforms.named(self._plan.platform)
                before = arrivals.LEFT if task.node in self.vanished else arrivals.GATE
                verdict = arrivals.ended_early([task], self._plan.names, platform, before, len(gone))
                self._unreached[task.node] = UnreachedReport(
                    task.node, math.inf, verdict if known is None else known.verdict
                )
                self._known = None

    def _forget(self, node: int) -> None:
        self._announced.pop(node, None)
        self._unreached.pop(node, None)
        self._late_reports.discard(node)

    def _compare(self, check_in: CheckIn, seconds: float) -> None:
        """Log the faults that are new and may pass, and those that have passed."""
        node, name = check_in.node, self._record.node_name(check_in.node)
        failed = [r for r in check_in.checks if r.status == Status.FAIL and r.patience is not None]
        before = {result.check for result in self._failing.get(node, [])}
        for result in failed:
            if result.check not in before:
                self._record.add_event("waiting", f"this may be temporary: {name}: {result.observed}", node)
        for result in check_in.checks:
            if result.check in before and result.status != Status.FAIL:
                passed = f"it passed after {seconds:.0f} s: {name}: {result.observed}"
                self._record.add_event("waiting", passed, node)
        self._failing[node] = failed

    # ---------------------------------------------------------------- state

    def look(self, now: float) -> CheckIns:
        """Return the certain verdicts, or what the gate waits for. At the deadline everything is certain."""
        missing = sorted(self._record.members - self._present)
        held = self._passing(now, bool(missing))
        stalled = [n for n, since in self._announced.items() if n in missing and now - since > STALL]
        reports = [report for node, report in self._unreached.items() if node in missing]
        if missing and now > self.deadline:
            known = {*stalled, *(report.node for report in reports)}
            return CheckIns(
                self._judge([n for n in missing if n not in known], stalled, reports), missing, {}
            )
        newcomers = self._record.newcomers
        if missing and newcomers.issuperset(missing) and now - self._arrived > NEWCOMER:
            who = phrases.nodes(missing, self._plan.names)
            sentence = f"{who} went away before the job was ready"
            return CheckIns([Verdict.of("node-missing", sentence, "gate", nodes=missing)], missing, {})
        if missing and now - self._arrived <= SETTLE:
            return CheckIns([], missing, held)
        if stalled or self._known is None or held.keys() != self._held.keys():
            long = [report for report in reports if report.seconds >= _patience(report)]
            late = [
                report
                for report in reports
                if report.node in self._late_reports or report.seconds >= _patience(report)
            ]
            self._held, self._known = held, self._judge(None, stalled, long, held)
            self._foreseen = self._judge(None, stalled, late) if held or late else self._known
        if self._known:
            # When all nodes are here, the verdict also covers the paths between them.
            return CheckIns(self._foreseen, missing, {}) if missing else CheckIns([], [], {}, self._foreseen)
        self._log_waiting(now, missing, held)
        return CheckIns([], missing, held, self._foreseen if now - self._arrived > SETTLE else None)

    def view(
        self,
        missing: Optional[list[int]] = None,
        stalled: Optional[list[int]] = None,
        reports: Optional[list[UnreachedReport]] = None,
    ) -> GateView:
        """Return all that is known about the nodes and their paths."""
        return GateView(
            plan=self._plan,
            check_ins=self._record.check_ins,
            waited=self._clock() - self.opened,
            missing=missing or [],
            vanished=sorted({*self.vanished, *self._stopped}),
            stopped=sorted(self._stopped),
            stalled=stalled or [],
            unreached={
                report.node: hub_unreached.seen_by_hub(report, self._plan.names) for report in reports or []
            },
            strays=self.strays,
            refused=sorted(self._record.refused),
            mesh=self._record.mesh,
            passed=self._record.passed,
        )

    def waiting_message(self, state: CheckIns, now: float, gates: int) -> Optional[Waiting]:
        """Return the list of what the gates wait for, if it is due again. `gates`: how many gates get it."""
        if now - self._sent < max(_WAITING_EVERY, gates / _EASY):
            return None
        self._sent = now
        passing = [self.describe_awaited(node, result) for (node, _), result in state.passing.items()]
        missing, more = state.missing[:NAMED], len(state.missing[NAMED:])
        return Waiting(missing, more, passing[:NAMED], round(now - self.opened, 1))

    def _judge(
        self,
        missing: Optional[list[int]],
        stalled: list[int],
        reports: list[UnreachedReport],
        but: Iterable[object] = (),
    ) -> list[Verdict]:
        """Return the verdicts without the failures in `but` (node and check), which may still pass."""
        view, spared = self.view(missing, stalled, reports), set(but)
        if spared:
            without = {
                n: dataclasses.replace(c, checks=[r for r in c.checks if (n, r.check) not in spared])
                for n, c in view.check_ins.items()
            }
            view = dataclasses.replace(view, check_ins=without)
        return decide.judge(view, self._record.complain)

    def _passing(self, now: float, others: bool) -> Held:
        """Return the failures that may still pass. `others`: nodes are awaited, so waiting costs nothing."""
        if now > self.deadline:
            return {}
        return {
            (node, result.check): result
            for node, failing in self._failing.items()
            for result in failing
            if now - self._first[node] < (PASSES if others else result.patience or 0.0)
        }

    def _log_waiting(self, now: float, missing: list[int], held: Held) -> None:
        if self._present and (missing or held) and now - self._logged >= _LOG_EVERY:
            self._logged = now
            what = [phrases.nodes(missing, self._plan.names)] if missing else []
            what += [self.describe_awaited(node, result) for (node, _), result in held.items()]
            bound = f"{now - self.opened:.0f} s of at most {self._plan.gate.timeout:.0f} s"
            self._record.add_event("waiting", f"waiting for {'; '.join(what)} ({bound})")

    def describe_awaited(self, node: int, result: CheckResult) -> str:
        """Return 'node 0 (n1): port 29500 is held by pid 812 (python)'."""
        return f"{self._record.node_name(node)}: {result.observed}"


def _patience(report: UnreachedReport) -> float:
    return PASSES if report.verdict.code in ("dns-not-found", "dns-unanswered") else UNREACHED


ALL = "all nodes"
LEFT_OUT = "the job goes on without it"
WAITS = "waits until the job lets it in"
"""The detail, for people, of nodes that are not part of the job yet."""


def dispensable(verdicts: Sequence[Verdict], record: JobRecord) -> set[int]:
    """Return the nodes without which no verdict would be left; none if the job cannot do without them.

    A node that differs from node 0, or does not reach it, is left out; node 0 has the hub and torchrun's
    store. Of two nodes with a broken path between them, a newcomer is left out, because the job ran without
    it.
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
"""Seconds to wait after a newcomer for others, so that all are let in together."""
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
        """Take a gate that has to wait, and return True; return False if `gates` itself awaits it."""
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
        """Turn away newcomers that could not join. A fault that may pass is given time to do so."""
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
        if self._record.exit_code is None:  # otherwise the hub itself hangs up
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
        """Whether the job has run for as long as a gate waits for nodes, and no other node is coming."""
        if self._calm is None or not self._waiting:
            return False
        ready = not any(_may_pass(each.check_in) for each in self._waiting.values())
        return ready and now - self._last >= COMPANY and now - self._calm >= self._record.plan.gate.timeout

    def _is_calm(self) -> bool:
        """Whether all nodes are at work and the hub has nothing to judge."""
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


def _beside(name: str, host: str) -> str:
    """Return ': n1', or without what the node's name says: ' on worker-2' of 'digits-1 on worker-2'."""
    known = name.rpartition(" (")[2][:-1] if name.endswith(")") else ""
    if known and (host == known or host.startswith(f"{known} on ")):
        return host[len(known) :]
    return f": {host}"
