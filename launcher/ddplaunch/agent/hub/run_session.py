"""The hub's side of the run: heartbeats in, evidence when they stop, one verdict out, the same for all nodes.

Nothing is ended before its evidence is safe: a hang after `kill_after`, a death once every node has told what
it knows of it. A job that restarts its workers by itself is told why, and left to do so.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Callable, Optional

from ddplaunch.agent.contract import Beat, Exit, JobEvidence, JobPlan, Phase, RankEvidence, Verdict, codec
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.diagnosis.run.causes import complaint
from ddplaunch.agent.diagnosis.run.decide import is_odd_start, judge, never_meet, nothing_moves
from ddplaunch.agent.diagnosis.run.progress import node_evicted
from ddplaunch.agent.hub.closing import Closing
from ddplaunch.agent.hub.ending import exit_code, farewell
from ddplaunch.agent.hub.eviction import BY_ENDING, Eviction
from ddplaunch.agent.hub.evidence_rounds import COLLECT, EvidenceRound, EvidenceRounds
from ddplaunch.agent.hub.evidence_store import EvidenceStore
from ddplaunch.agent.hub.init_calls import InitCalls
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.liveness import Liveness
from ddplaunch.agent.hub.notices import Notices
from ddplaunch.agent.hub.recheck import DOUBT, Recheck, is_doubtful
from ddplaunch.agent.hub.reconnects import Reconnects
from ddplaunch.agent.hub.server import Session
from ddplaunch.agent.hub.stall_detector import StallDetector, detail
from ddplaunch.agent.hub.supervisor_join import SupervisorJoin
from ddplaunch.agent.transport.protocol import Body

SETTLE = 1.0
"""Seconds after the first death for those of other nodes to be told, so that the first cause is known."""
_OF_NODES = ["beat", "rendezvous", "death", "evidence", "stopping", "finished"]


class RunSession:
    """Handles supervisors from `join` to `finished`, and what the command line asks meanwhile."""

    kinds = frozenset([*_OF_NODES, "join", "diagnose", "ending"])

    def __init__(self, plan: JobPlan, record: JobRecord, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.record = record
        self.clock = clock
        self.watch = StallDetector(plan.watchdog, plan.nodes)
        self.evidence_store = EvidenceStore(plan)
        self.sessions: dict[int, Session] = {}
        self.finished: dict[int, int] = {}
        self.supervisor_join = SupervisorJoin(record)
        self.liveness = Liveness(plan.watchdog)
        self.rounds = EvidenceRounds(self._collect)
        self.judge_at: Optional[float] = None  # when the deaths told so far are judged
        self.recheck = Recheck()
        self.calls = InitCalls()
        self.restarts = 0
        self.notices = Notices(record, self.sessions)
        self.reconnects = Reconnects()
        self.ending: Optional[str] = None  # why somebody is about to end the job
        self.eviction = Eviction(plan.nodes)
        self.closing = Closing(record, self.sessions)

    def resume(self) -> None:
        """Go on in the place of a hub that was killed, with what it has left in the record."""
        now, nodes = self.clock(), self.record.nodes
        self.finished.update({n: each.exit_code for n, each in nodes.items() if each.exit_code is not None})
        here = {n for n, each in nodes.items() if each.phase not in (Phase.STARTING, Phase.GATE)}
        self.watch = StallDetector(self.plan.watchdog, self.plan.nodes - len(self.finished))
        self.supervisor_join.resume(here, now)
        self.reconnects.expect(here - self.finished.keys(), now)
        if here:  # else it is the gate's to end
            self.closing.resume(now)

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code that the job ends with; None while no end is decided."""
        return self.closing.exit_code

    # ---------------------------------------------------------------- what is said

    async def received(self, session: Session, kind: str, body: Body) -> None:
        now = self.clock()
        if kind == "join":
            self._join(session, codec.load(int, body.get("node")), body, now)
        elif kind == "diagnose":
            self._ask("asked", now, session)
        elif kind == "ending":
            self._ending(session, str(body.get("why", "")), now)
        elif session.node is None or session.node not in self.record.nodes:
            # Its gate may have sent a node number that the job does not have.
            raise codec.ContractError(f"{kind} from somebody who did not join")
        else:
            self._of_node(session, session.node, kind, body, now)
        if kind != "beat":  # of which a thousand nodes send a thousand a second
            # What fails is told by the next tick: whoever spoke last is not to blame.
            with contextlib.suppress(Exception):
                await self.tick(now)

    def _of_node(self, session: Session, node: int, kind: str, body: Body, now: float) -> None:
        if kind == "beat":
            self._beat(node, codec.load(Beat, body.get("beat")), now)
        elif kind == "rendezvous":
            self.evidence_store.rendezvous(node, codec.load(RankEvidence, body.get("rank")))
            self.calls.heard(now)
        elif kind == "death":
            self._death(node, codec.load(RankEvidence, body.get("rank")), now)
        elif kind == "evidence":
            self.rounds.hear(codec.load(int, body.get("id")), self.evidence_store.evidence(node, body))
        elif kind == "stopping":
            self._stopping(node, str(body.get("why", "")), now)
        else:
            self.closing.wants_to_go(session, now)
            verdicts = catalogue.load_verdicts(body.get("verdicts", []))
            self._finished(node, catalogue.load_exit_code(body.get("exit_code")), verdicts, now)

    async def lost(self, session: Session) -> None:
        self.closing.has_gone(session)
        if session.node is not None and self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            if session.node not in self.finished:
                self.liveness.closed(session.node, session, self.clock())
                text = f"{self.record.node_name(session.node)} has closed its connection"
                self.record.event("lost", text, session.node)

    async def tick(self, now: float) -> None:
        self.closing.let_go(now)
        self.notices.sign(now)
        if self.record.exit_code is not None or self.reconnects.waits(now):
            return
        if self.closing.leave_at is not None:
            if now >= self.closing.leave_at or self._answering() <= self.finished.keys():
                self.record.end(self.exit_code or 0)
            return
        self._look_for_missing(now)
        self._look_for_lost(now)
        done = self.rounds.finished(now)
        if done is not None:
            self._settle(done, now)
            self.rounds.start(now)
        if self.exit_code is not None:
            return
        if self._heeds_eviction(now):
            return
        ended = self.finished.keys() | self.liveness.gone
        busy = self.rounds.current is not None or not self.eviction.is_plain(now)
        if self.judge_at is not None and now >= self.judge_at and not busy:
            self._judge_deaths(now)
        elif len(ended) == self.plan.nodes and self.judge_at is None and not busy:
            self.closing.all_done(set(self.finished.values()), bool(self.liveness.gone))
        elif self.judge_at is None:
            self._watch(now)

    async def stop(self, why: str) -> None:
        if self.eviction.begun or any(lost.closed for lost in self.liveness.lost):
            return  # nodes that were told to stop, or went away, are why: the job ends with them in a moment
        if self.exit_code is None and self.record.agreed is not None:  # else it is the gate's to end
            self.record.event("end", f"told to stop{why and ': ' + why}")
            self._ask("stop", self.clock())

    @property
    def deliberates(self) -> bool:
        """Whether something is about to be judged, though nobody may be left to speak."""
        waits = bool(self.liveness.lost) or self.reconnects.waits(self.clock())
        return waits or self.judge_at is not None or self.rounds.current is not None

    # ---------------------------------------------------------------- what was said, taken in

    def _join(self, session: Session, node: int, body: Body, now: float) -> None:
        if node not in self.finished:
            self.supervisor_join.joined(node, str(body.get("host", "")), now)
            self.liveness.joined(node, session, now)
        self.evidence_store.clock(node, codec.load(float, body.get("at", time.time())))
        session.node = node
        self.sessions[node] = session
        self.reconnects.is_back(node)
        self.record.follow(self.finished)
        if self.exit_code is not None:
            session.send("end", farewell(self.exit_code, self.record.verdicts))

    def _beat(self, node: int, beat: Beat, now: float) -> None:
        self.evidence_store.beat(node, beat)
        if beat.node in self.finished or beat.node in self.liveness.gone:
            return
        self.liveness.heard(beat.node, now, sum(rank.completed for rank in beat.ranks))
        self.watch.hear(beat, now)
        self.record.node(beat.node, phase=beat.phase, detail=detail(beat))
        self.record.follow(self.finished)

    def _death(self, node: int, rank: RankEvidence, now: float) -> None:
        if self.evidence_store.is_known(node, rank):
            return
        rank = self.evidence_store.death(node, rank)
        end = rank.exit
        well = end is not None and end.code == 0
        text = "has finished" if well else f"has ended: {complaint(rank)}"
        self.record.event("death", f"rank {rank.rank} {text}", node, rank.rank)
        # An end that nobody saw is judged when the launch command ends: it knows whether that was well.
        bad = end is None or (not end.by_us and (end.signal is not None or end.code not in (0, None)))
        if bad and not self.evidence_store.is_past(node, rank):
            self._expect_verdict(now)

    def _finished(self, node: int, exit_code: int, verdicts: list[Verdict], now: float) -> None:
        self.liveness.finished(node)
        if node in self.finished:
            return  # it was not sure that we had heard
        self.finished[node] = exit_code
        self.eviction.ended(node)
        self.watch.forget(node, now)
        self.record.node(node, phase=Phase.ENDED, exit_code=exit_code, detail="")
        self.record.follow(self.finished)
        if self.exit_code is not None:
            return
        if exit_code == Exit.STOPPED:
            self._heeds_eviction(now)
        elif verdicts:  # it could not start its ranks, and says why
            self._end(exit_code, verdicts, self._all_evidence("death"), now)
        elif exit_code != Exit.OK:
            self._expect_verdict(now)
        elif self.plan.mpi and node == 0:  # the launcher has seen all ranks of all nodes end well
            self.record.event("end", "all ranks have finished")
            self._end(Exit.OK, [], None, now)

    def _stopping(self, node: int, how: str, now: float) -> None:
        """Ask for evidence while all still stand; whether this node alone is meant shows in a moment."""
        self.record.event("ending", f"{self.record.node_name(node)} was told to stop: {how}", node)
        if self.eviction.told(node, how, now):
            self._ask("stopping", now)

    def _heeds_eviction(self, now: float) -> bool:
        """Nodes that were told to stop are told of; once such a node has ended, so does the job."""
        if self.eviction.is_due(now):
            self._tell_of_eviction()
        if Exit.STOPPED not in self.finished.values() or not self.eviction.is_plain(now):
            return False
        self._end(Exit.STOPPED, self.record.verdicts, self._all_evidence("stop"), now)
        return True

    def _expect_verdict(self, now: float) -> None:
        """Ask all for evidence after a bad end, while they stand where they stood, and judge in a moment."""
        if self.exit_code is None and self.judge_at is None:
            self.judge_at = now + SETTLE
            self._ask("death", now)

    def _ending(self, session: Session, why: str, now: float) -> None:
        """Ask all nodes for evidence: whoever sent this message is about to end the job."""
        self.ending = why or "nobody said why"
        self.record.event("ending", f"the job is about to be ended from outside: {self.ending}")
        self._ask("ending", now, session)

    def _look_for_missing(self, now: float) -> None:
        """Judge nodes that have not come after the gate."""
        fault = self.supervisor_join.look(now)
        if fault is not None and fault.certain:
            self._end(
                exit_code(fault.verdicts, self.finished), fault.verdicts, self._all_evidence("joining"), now
            )
        elif fault is not None:
            self.notices.give(fault.verdicts, self._all_evidence("joining"))

    def _look_for_lost(self, now: float) -> None:
        for node in self.reconnects.give_up():
            self.liveness.missed(node, now)
        silent, back, gone, slept = self.liveness.look(now, lambda: self.watch.waits_for_silent(now))
        if slept:
            self.watch.wake(now)
        for node in silent:
            self.record.node(node, detail="does not answer")
            self.record.event("lost", f"{self.record.node_name(node)} {self.liveness.how(node)}", node)
            self._ask("silence", now)
        for node in back:
            self.record.node(node, detail="")
            self.record.event("lost", f"{self.record.node_name(node)} answers again", node)
            self.notices.withdraw()
        for node in gone:
            self.watch.forget(node, now)
            self.record.node(node, detail="lost")
            self._expect_verdict(now)

    def _watch(self, now: float) -> None:
        if self.watch.moving_again(now):
            self.notices.withdraw()
            self.record.event("notice", "the job is moving again")
        odd = self.calls.due(now) and is_odd_start(self._all_evidence("call"))
        why = "call" if odd else self.watch.decide(now)
        if why is not None:
            self._ask(why, now)

    # ---------------------------------------------------------------- rounds of evidence

    def _ask(self, why: str, now: float, asker: Optional[Session] = None) -> None:
        if self.exit_code is None:
            self.rounds.ask(why, now, asker)
        elif asker is not None:
            self._answer([asker], self.record.evidence, self.record.verdicts)

    def _collect(self, wanted: EvidenceRound) -> set[int]:
        nodes = self._answering() - self.finished.keys()
        for node in nodes:
            body = {"id": wanted.id, "why": wanted.why, "deadline": COLLECT}
            self.sessions[node].send("collect", body)
        return nodes

    def _settle(self, done: EvidenceRound, now: float) -> None:
        """Act on a finished round. Deaths are judged by their own time."""
        evidence = self._all_evidence(done.why, done)
        if done.why in ("still", "deadline") and not nothing_moves(evidence):
            self.watch.stand_down(now)
        elif done.why == "call":
            self.notices.give(never_meet(evidence, self.record.complain), evidence)
        elif done.why in ("still", "silence", "apart"):
            self.notices.give(judge(evidence, self.record.complain), evidence)
        elif done.why == "deadline":
            # A rank that failed may leave the others, or itself, hanging: its failure is what happened.
            verdicts = judge(evidence, self.record.complain)
            code = catalogue.exit_code(verdicts[0]) if verdicts else Exit.HANG
            self._end(code, verdicts, evidence, now)
        elif done.why == "stop":
            self._end(Exit.STOPPED, self.record.verdicts, evidence, now)
        elif done.why == "ending":
            self._tell_of_ending(evidence)
            self._answer(done.askers, evidence, self.record.verdicts)
        elif done.why == "asked":
            verdicts = judge(evidence, self.record.complain)
            self._answer(done.askers, evidence, verdicts)
            if not done.askers:
                self.notices.give(verdicts, evidence)

    def _answer(
        self, askers: list[Session], evidence: Optional[JobEvidence], verdicts: list[Verdict]
    ) -> None:
        """The bundle as it is now, to those who asked; what lies on disk is only replaced by a verdict."""
        for asker in askers:
            bundle = replace(self.record.bundle(), evidence=evidence, verdicts=verdicts)
            asker.send("bundle", codec.dump(bundle))

    def _all_evidence(self, why: str, done: Optional[EvidenceRound] = None) -> JobEvidence:
        hosts = {number: node.host for number, node in self.record.nodes.items()}
        return self.evidence_store.whole(why, self.liveness.lost, hosts, done, self.record.agreed)

    # ---------------------------------------------------------------- verdicts

    def _tell_of_ending(self, evidence: JobEvidence) -> None:
        """Print what is wrong with the job, if anything is; else how far it was."""
        assert self.ending is not None
        missing = self.record.waiting_for if self.record.agreed is None else None
        verdicts = judge(evidence, self.record.complain) or [node_evicted(evidence, self.ending, missing)]
        self.notices.forget()
        self.notices.give(verdicts, evidence)

    def _tell_of_eviction(self) -> None:
        """Tell of the eviction; a verdict that stood before stands."""
        self.eviction.noticed = True
        if self.record.verdicts or self.ending is not None:
            return
        evidence = self._all_evidence("stopping")
        self.notices.give([node_evicted(evidence, self.eviction.how, evicted=self.eviction.nodes)], evidence)

    def _judge_deaths(self, now: float) -> None:
        assert self.judge_at is not None
        evidence = self._all_evidence("death")
        verdicts = judge(evidence, self.record.complain)
        told = self.ending is not None or self.eviction.begun
        if told and all(verdict.code in BY_ENDING for verdict in verdicts):
            self._end(Exit.STOPPED, self.record.verdicts, evidence, now)
            return
        if self.recheck.lasts(verdicts, evidence, now):
            self.judge_at = now + DOUBT
            self._ask("death", now)
            return
        self.judge_at = None
        if self.restarts < self.plan.max_restarts and not self.finished and not self.liveness.gone:
            self._let_restart(verdicts, evidence)
            return
        verdicts = (is_doubtful(verdicts) and self.record.verdicts) or verdicts
        code = Exit.NODE_AT_FAULT if self.liveness.lost else exit_code(verdicts, self.finished)
        self._end(code, verdicts, evidence, now)

    def _let_restart(self, verdicts: list[Verdict], evidence: JobEvidence) -> None:
        """torchrun starts the workers again by itself; they are other processes, watched anew."""
        self.restarts += 1
        self.notices.give(verdicts, evidence)
        text = f"the launch command restarts the workers ({self.restarts} of {self.plan.max_restarts})"
        self.record.event("notice", text)
        self.evidence_store.restart()
        self.notices.forget()
        self.watch = StallDetector(
            self.plan.watchdog, self.plan.nodes - len({*self.finished, *self.liveness.gone})
        )

    def _end(self, code: int, verdicts: list[Verdict], evidence: Optional[JobEvidence], now: float) -> None:
        self.judge_at = None
        self.closing.begin(code, verdicts, evidence, now)
        self._answer(self.rounds.give_up(), self.record.evidence, self.record.verdicts)

    def _answering(self) -> set[int]:
        """Return the connected nodes that are not given up."""
        return set(self.sessions) - {lost.node for lost in self.liveness.lost}
