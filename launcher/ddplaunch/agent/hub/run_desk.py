"""The run as the hub sees it: heartbeats in, evidence when they stop, one verdict out, the same to all nodes.

Nothing is ended before its evidence is safe: a hang after `kill_after`, a death once every node has told what
it knows of it. A job that restarts its workers by itself is told why, and left to do so.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Callable, Optional

from ddplaunch.agent import codec
from ddplaunch.agent.contract import (
    Beat,
    Exit,
    JobEvidence,
    JobPlan,
    NodeEvidence,
    Phase,
    RankEvidence,
    Verdict,
)
from ddplaunch.agent.hub.doubt import DOUBT, Doubt, is_doubtful
from ddplaunch.agent.hub.eviction import BY_ENDING, Eviction
from ddplaunch.agent.hub.joining import Joining
from ddplaunch.agent.hub.presence import Presence
from ddplaunch.agent.hub.record import Record
from ddplaunch.agent.hub.rounds import COLLECT, Round, Rounds
from ddplaunch.agent.hub.server import Session, tell
from ddplaunch.agent.hub.testimony import Testimony
from ddplaunch.agent.hub.watch import Watch, detail
from ddplaunch.agent.protocol import Body
from ddplaunch.agent.verdicts.catalogue import CATALOGUE
from ddplaunch.agent.verdicts.causes import complaint
from ddplaunch.agent.verdicts.decide import judge, nothing_moves
from ddplaunch.agent.verdicts.moving import node_evicted

SETTLE = 1.0
"""Seconds after the first death for those of other nodes to be told, so that the first cause is known."""
GRACE = 5.0
"""Seconds the ranks have between SIGTERM and SIGKILL when the job is ended."""
FAREWELL = 45.0
"""Seconds for all nodes to end, torchrun's own patience included, before the hub goes without them."""


class RunDesk:
    """What supervisors say between `join` and `finished`, and what the command line asks meanwhile."""

    kinds = frozenset(["join", "beat", "death", "evidence", "stopping", "finished", "diagnose", "ending"])

    def __init__(self, plan: JobPlan, record: Record, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.record = record
        self.clock = clock
        self.watch = Watch(plan.watchdog, plan.nodes)
        self.testimony = Testimony(plan)
        self.sessions: dict[int, Session] = {}
        self.finished: dict[int, int] = {}
        self.joining = Joining(record)
        self.presence = Presence(plan.watchdog.kill_after)
        self.rounds = Rounds(self._collect)
        self.judge_at: Optional[float] = None  # when the deaths told so far are judged
        self.doubt = Doubt()
        self.restarts = 0
        self.said: object = None  # code and ranks of the last notice
        self.ending: Optional[str] = None  # why somebody is about to end the job
        self.eviction = Eviction(plan.nodes)
        self.exit_code: Optional[int] = None
        self.leave_at: Optional[float] = None

    # ---------------------------------------------------------------- what is said

    async def received(self, session: Session, kind: str, body: Body) -> None:
        now = self.clock()
        if kind == "join":
            self._join(session, int(body["node"]), str(body.get("host", "")), now)
        elif kind == "diagnose":
            self._ask("asked", now, session)
        elif kind == "ending":
            self._ending(session, str(body.get("why", "")), now)
        elif session.node is None:
            raise codec.ContractError(f"{kind} from somebody who did not join")
        elif kind == "beat":
            self._beat(codec.load(Beat, body["beat"]), now)
        elif kind == "death":
            self._death(session.node, codec.load(RankEvidence, body["rank"]), now)
        elif kind == "evidence":
            evidence = self.testimony.evidence(codec.load(NodeEvidence, body["evidence"]))
            self.rounds.hear(int(body["id"]), evidence)
        elif kind == "stopping":
            self._stopping(session.node, str(body.get("why", "")), now)
        else:
            self._finished(session.node, int(body["exit_code"]), now)
        if kind != "beat":  # of which a thousand nodes send a thousand a second
            # What fails is told by the next tick: whoever spoke last is not to blame.
            with contextlib.suppress(Exception):
                await self.tick(now)

    async def lost(self, session: Session) -> None:
        if session.node is not None and self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            if session.node not in self.finished:
                self.presence.closed(session.node, session, self.clock())
                text = f"{self.record.node_name(session.node)} has closed its connection"
                self.record.event("lost", text, session.node)

    async def tick(self, now: float) -> None:
        if self.record.exit_code is not None:
            return
        if self.leave_at is not None:
            if now >= self.leave_at or self._answering() <= self.finished.keys():
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
        ended = self.finished.keys() | self.presence.gone
        busy = self.rounds.current is not None or not self.eviction.is_plain(now)
        if self.judge_at is not None and now >= self.judge_at and not busy:
            self._judge_deaths(now)
        elif len(ended) == self.plan.nodes and self.judge_at is None and not busy:
            self._all_done()
        elif self.judge_at is None:
            self._watch(now)

    async def stop(self, why: str) -> None:
        if self.eviction.begun or any(lost.closed for lost in self.presence.lost):
            return  # nodes that were told to stop, or went away, are why: the job ends with them in a moment
        if self.exit_code is None and self.record.agreed is not None:  # else it is the gate's to end
            self.record.event("end", f"told to stop{why and ': ' + why}")
            self._ask("stop", self.clock())

    @property
    def deliberates(self) -> bool:
        """Whether something is about to be judged, though nobody may be left to speak."""
        return bool(self.presence.lost) or self.judge_at is not None or self.rounds.current is not None

    # ---------------------------------------------------------------- what was said, taken in

    def _join(self, session: Session, node: int, host: str, now: float) -> None:
        self.joining.joined(node, host, now)
        session.node = node
        self.sessions[node] = session
        self.presence.joined(node, session, now)
        self.record.follow(self.finished)
        if self.exit_code is not None:
            session.send("end", self._farewell())

    def _beat(self, beat: Beat, now: float) -> None:
        self.testimony.beat(beat)
        if beat.node in self.finished or beat.node in self.presence.gone:
            return
        self.presence.heard(beat.node, now, sum(rank.completed for rank in beat.ranks))
        self.watch.hear(beat, now)
        self.record.node(beat.node, phase=beat.phase, detail=detail(beat))
        self.record.follow(self.finished)

    def _death(self, node: int, rank: RankEvidence, now: float) -> None:
        rank = self.testimony.death(node, rank)
        end = rank.exit
        well = end is not None and end.code == 0
        text = "has finished" if well else f"has ended: {complaint(rank)}"
        self.record.event("death", f"rank {rank.rank} {text}", node, rank.rank)
        # An end that nobody saw is judged when the launch command ends: it knows whether that was well.
        bad = end is None or (not end.by_us and (end.signal is not None or end.code not in (0, None)))
        if bad and not self.testimony.is_past(node, rank):
            self._expect_verdict(now)

    def _finished(self, node: int, exit_code: int, now: float) -> None:
        self.finished[node] = exit_code
        self.eviction.ended(node)
        self.presence.finished(node)
        self.watch.forget(node, now)
        self.record.node(node, phase=Phase.ENDED, exit_code=exit_code, detail="")
        self.record.follow(self.finished)
        if self.exit_code is not None:
            return
        if exit_code == Exit.STOPPED:
            self._heeds_eviction(now)
        elif exit_code != Exit.OK:
            self._expect_verdict(now)
        elif self.plan.mpi and node == 0:  # the launcher has seen all ranks of all nodes end well
            self.record.event("end", "all ranks have finished")
            self._end(Exit.OK, [], None, now)

    def _stopping(self, node: int, how: str, now: float) -> None:
        """This node alone or all of them: that shows in a moment. Ask while all still stand."""
        self.record.event("ending", f"{self.record.node_name(node)} was told to stop: {how}", node)
        if self.eviction.told(node, how, now):
            self._ask("stopping", now)

    def _heeds_eviction(self, now: float) -> bool:
        """Nodes that were told to stop are told of; once such a node has ended, so does the job."""
        if self.eviction.is_news(now):
            self._tell_of_eviction()
        if Exit.STOPPED not in self.finished.values() or not self.eviction.is_plain(now):
            return False
        self._end(Exit.STOPPED, self.record.verdicts, self._all_evidence("stop"), now)
        return True

    def _expect_verdict(self, now: float) -> None:
        """Somebody ended badly: ask all while they still stand where they stood, and judge in a moment."""
        if self.exit_code is None and self.judge_at is None:
            self.judge_at = now + SETTLE
            self._ask("death", now)

    def _ending(self, session: Session, why: str, now: float) -> None:
        """Somebody will end the job in a moment: what there is to know is to be known before."""
        self.ending = why or "nobody said why"
        self.record.event("ending", f"the job is about to be ended from outside: {self.ending}")
        self._ask("ending", now, session)

    def _look_for_missing(self, now: float) -> None:
        """Who has not come after the gate."""
        news = self.joining.look(now)
        if news is not None and news.certain:
            self._end(self._code(news.verdicts), news.verdicts, self._all_evidence("joining"), now)
        elif news is not None:
            self._notice(news.verdicts, self._all_evidence("joining"))

    def _look_for_lost(self, now: float) -> None:
        silent, back, gone = self.presence.look(now)
        for node in silent:
            self.record.node(node, detail="does not answer")
            self.record.event("lost", f"{self.record.node_name(node)} does not answer any more", node)
            self._ask("silence", now)
        for node in back:
            self.record.node(node, detail="")
            self.record.event("lost", f"{self.record.node_name(node)} answers again", node)
            self.said = None
            self.record.judge([])
        for node in gone:
            self.watch.forget(node, now)
            self.record.node(node, detail="lost")
            self._expect_verdict(now)

    def _watch(self, now: float) -> None:
        if self.watch.moving_again(now):
            self.said = None
            self.record.judge([])
            self.record.event("notice", "the job is moving again")
        why = self.watch.decide(now)
        if why is not None:
            self._ask(why, now)

    # ---------------------------------------------------------------- rounds of evidence

    def _ask(self, why: str, now: float, asker: Optional[Session] = None) -> None:
        if self.exit_code is None:
            self.rounds.ask(why, now, asker)
        elif asker is not None:
            self._answer([asker], self.record.evidence, self.record.verdicts)

    def _collect(self, wanted: Round) -> set[int]:
        nodes = self._answering() - self.finished.keys()
        for node in nodes:
            body = {"id": wanted.id, "why": wanted.why, "deadline": COLLECT}
            self.sessions[node].send("collect", body)
        return nodes

    def _settle(self, done: Round, now: float) -> None:
        """What follows from a finished round. Deaths are judged by their own time."""
        evidence = self._all_evidence(done.why, done)
        if done.why in ("still", "deadline") and not nothing_moves(evidence):
            self.watch.stand_down(now)
        elif done.why in ("still", "silence"):
            self._notice(judge(evidence, self.record.complain), evidence)
        elif done.why == "deadline":
            # A rank that failed may leave the others, or itself, hanging: its failure is what happened.
            verdicts = judge(evidence, self.record.complain)
            code = CATALOGUE[verdicts[0].code].exit_code if verdicts else Exit.HANG
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
                self._notice(verdicts, evidence)

    def _answer(
        self, askers: list[Session], evidence: Optional[JobEvidence], verdicts: list[Verdict]
    ) -> None:
        """The bundle as it is now, to those who asked; what lies on disk is only replaced by a verdict."""
        for asker in askers:
            bundle = replace(self.record.bundle(), evidence=evidence, verdicts=verdicts)
            asker.send("bundle", codec.dump(bundle))

    def _all_evidence(self, why: str, done: Optional[Round] = None) -> JobEvidence:
        hosts = {number: node.host for number, node in self.record.nodes.items()}
        return self.testimony.whole(why, self.presence.lost, hosts, done)

    # ---------------------------------------------------------------- verdicts

    def _notice(self, verdicts: list[Verdict], evidence: JobEvidence) -> None:
        """Say it once; only what is wrong with other ranks, or otherwise wrong, is said anew."""
        said = [(verdict.code, verdict.ranks) for verdict in verdicts]
        if not verdicts or said == self.said:
            return
        self.said = said
        verdicts = self.record.placed(verdicts)
        for verdict in verdicts:
            self.record.event("notice", f"{verdict.code}: {verdict.sentence}")
        if all(verdict.code == "slow" for verdict in verdicts):
            return  # no alarm
        self.record.judge(verdicts, evidence)
        tell(self.sessions.values(), "notice", {"verdicts": codec.dump(verdicts), "why": evidence.why})

    def _tell_of_ending(self, evidence: JobEvidence) -> None:
        """What is wrong with the job, if anything is; else how far it was."""
        assert self.ending is not None
        missing = self.record.waiting_for if self.record.agreed is None else None
        verdicts = judge(evidence, self.record.complain) or [node_evicted(evidence, self.ending, missing)]
        self.said = None
        self._notice(verdicts, evidence)

    def _tell_of_eviction(self) -> None:
        """What was wrong with the job before stands."""
        self.eviction.noticed = True
        if self.record.verdicts or self.ending is not None:
            return
        evidence = self._all_evidence("stopping")
        self._notice([node_evicted(evidence, self.eviction.how, evicted=self.eviction.nodes)], evidence)

    def _judge_deaths(self, now: float) -> None:
        assert self.judge_at is not None
        evidence = self._all_evidence("death")
        verdicts = judge(evidence, self.record.complain)
        told = self.ending is not None or self.eviction.begun
        if told and all(verdict.code in BY_ENDING for verdict in verdicts):
            self._end(Exit.STOPPED, self.record.verdicts, evidence, now)
            return
        if self.doubt.lasts(verdicts, evidence, now):
            self.judge_at = now + DOUBT
            self._ask("death", now)
            return
        self.judge_at = None
        if self.restarts < self.plan.max_restarts and not self.finished and not self.presence.gone:
            self._let_restart(verdicts, evidence)
            return
        verdicts = (is_doubtful(verdicts) and self.record.verdicts) or verdicts
        self._end(self._code(verdicts), verdicts, evidence, now)

    def _let_restart(self, verdicts: list[Verdict], evidence: JobEvidence) -> None:
        """torchrun starts the workers again by itself; they are other processes, watched anew."""
        self.restarts += 1
        self._notice(verdicts, evidence)
        text = f"the launch command restarts the workers ({self.restarts} of {self.plan.max_restarts})"
        self.record.event("notice", text)
        self.testimony.restart()
        self.said = None
        self.watch = Watch(self.plan.watchdog, self.plan.nodes - len({*self.finished, *self.presence.gone}))

    def _code(self, verdicts: list[Verdict]) -> int:
        """What the job's exit code tells a scheduler: a lost node's job may work elsewhere."""
        if self.presence.lost:
            return Exit.NODE_AT_FAULT
        return CATALOGUE[verdicts[0].code].exit_code if verdicts else Exit.WORKER_FAILED

    def _all_done(self) -> None:
        """Every node has ended and nobody had to be judged: well, or by what the nodes themselves say."""
        codes = set(self.finished.values())
        if codes == {Exit.OK} and not self.presence.gone:
            self.record.judge([])
            self.record.event("end", "all ranks have finished")
        self.exit_code = max(codes, default=Exit.NODE_AT_FAULT)
        tell(self.sessions.values(), "end", self._farewell())
        self.record.end(self.exit_code)

    def _end(
        self, exit_code: int, verdicts: list[Verdict], evidence: Optional[JobEvidence], now: float
    ) -> None:
        """One end for all nodes, with one reason."""
        self.exit_code, self.leave_at, self.judge_at = exit_code, now + FAREWELL, None
        self.record.judge(self.record.placed(verdicts), evidence)
        for verdict in self.record.verdicts:
            self.record.event("verdict", f"{verdict.code}: {verdict.sentence}")
        tell(self.sessions.values(), "end", self._farewell())
        self._answer(self.rounds.give_up(), self.record.evidence, self.record.verdicts)

    def _farewell(self) -> Body:
        verdicts = codec.dump(self.record.verdicts)
        return {"exit_code": self.exit_code, "verdicts": verdicts, "grace": GRACE}

    def _answering(self) -> set[int]:
        """From whom something may come."""
        return set(self.sessions) - {lost.node for lost in self.presence.lost}
