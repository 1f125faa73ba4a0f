"""The hub's side of the run: heartbeats come in, evidence when they stop; one verdict goes out to all nodes.

A death ends no job. Evidence of all ranks is collected at once, but only when the launch command ends is it
known what becomes of the death. If the command fails, the death is the verdict, and nodes that cannot go on
without it are ended once every node has sent its evidence. If it goes on, all nodes get a notice. If it ends
well, the death is history. A hang is ended after `kill_after`.

`hub` makes a `RunSession`, and the server hands it the messages of supervisors. It lets `diagnosis.run`
judge.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Callable, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import (
    Beat,
    Exit,
    Files,
    JobEvidence,
    JobPlan,
    Phase,
    StopRequest,
    Verdict,
    bundle_file,
    codec,
    messages,
)
from ddplaunch.agent.contract.messages import Message, Way
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.diagnosis.run.causes import complaint
from ddplaunch.agent.diagnosis.run.decide import computing_for, is_odd_start, judge, never_meet, nothing_moves
from ddplaunch.agent.diagnosis.run.ends import node_evicted
from ddplaunch.agent.hub.attempts import (
    LAST,
    Failure,
    LaunchAttempts,
    announced_restart,
    is_doubtful,
)
from ddplaunch.agent.hub.closing import (
    BACK_TO_GATE,
    BY_ENDING,
    Closing,
    Eviction,
    RankSignal,
    exit_code,
    farewell,
)
from ddplaunch.agent.hub.evidence import COLLECT, EvidenceRound, EvidenceRounds, EvidenceStore, dump_room
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.liveness import Liveness, SupervisorJoin
from ddplaunch.agent.hub.notify import Notices
from ddplaunch.agent.hub.server import NodeSessions, Session
from ddplaunch.agent.hub.stalls import StallDetector, node_wait


class RunState(enum.Enum):
    """States of the run. It ends in CLOSING. Evidence is collected in WATCHING and JUDGING."""

    WATCHING = "takes heartbeats, and looks for stalls and missing nodes"
    JUDGING = "waits for evidence of ranks that have ended, to judge it"
    CLOSING = "has sent the end, and waits for all nodes to leave"


NEXT: Mapping[RunState, Set[RunState]] = {
    RunState.WATCHING: {RunState.JUDGING, RunState.CLOSING},
    RunState.JUDGING: {RunState.WATCHING, RunState.CLOSING},  # WATCHING: the launch command goes on
    RunState.CLOSING: set(),
}


class RunSession:
    """Handles supervisors from `join` to `finished`, and requests from the command line meanwhile."""

    takes = (*messages.by_way(Way.SUPERVISOR_TO_HUB), messages.AskDiagnosis, messages.Ending)

    def __init__(self, plan: JobPlan, record: JobRecord, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self.record = record
        self.clock = clock
        self.stalls = StallDetector(plan.watchdog, record.members)
        self.evidence_store = EvidenceStore(record)
        self.sessions = NodeSessions()
        self.supervisor_join = SupervisorJoin(record)
        self.liveness = Liveness(plan.watchdog)
        self.rounds = EvidenceRounds(self._collect)
        self.state = RunState.WATCHING
        self.attempts = LaunchAttempts(record)
        self.notices = Notices(record, self.sessions)
        self.ending: Optional[str] = None  # why the job is about to be ended from outside
        self.eviction = Eviction(record)
        self.closing = Closing(record, self.sessions)
        self.rank_signal = RankSignal(plan, record, self.sessions)
        self.stop_why: Optional[str] = None  # told to stop, while nodes were leaving by themselves

    def resume(self) -> None:
        """Go on in place of a hub that was killed, with what it left in the record."""
        now, nodes = self.clock(), self.record.nodes
        here = {n for n in self.record.members if nodes[n].phase not in (Phase.STARTING, Phase.GATE)}
        for node in self.record.finished:
            self.stalls.forget(node, now)
        self.supervisor_join.resume(here, now)
        self.liveness.expect(here - self.record.finished.keys(), now)
        self.attempts.resume()
        if here and self.closing.resume(now):  # without `here` the gate ends the job
            self._enter(RunState.CLOSING)

    def _enter(self, state: RunState) -> None:
        assert state in NEXT[self.state], (self.state, state)
        self.state = state

    # ---------------------------------------------------------------- handler

    async def received(self, session: Session, message: Message) -> None:
        now = self.clock()
        if isinstance(message, messages.Join):
            self._take_join(session, message, now)
        elif isinstance(message, messages.AskDiagnosis):
            self._request("asked", now, session)
        elif isinstance(message, messages.Ending):
            self._take_ending(session, message.why, now)
        elif session.node is None or session.node not in self.record.nodes:
            # Its gate may have sent a node number that is not in the job.
            raise codec.ContractError(f"{message.kind} from a client that has not joined")
        else:
            self._take_from_node(session, session.node, message, now)
        if not isinstance(message, messages.Heartbeat):  # a thousand nodes send a thousand of these a second
            # The next tick deals with an exception: here it would drop the client that sent this message.
            with contextlib.suppress(Exception):
                await self.tick(now)

    def _take_from_node(self, session: Session, node: int, message: Message, now: float) -> None:
        if isinstance(message, messages.Heartbeat):
            self._take_heartbeat(node, message, now)
        elif isinstance(message, messages.RendezvousCalled):
            self.evidence_store.add_rendezvous_call(node, message.rank)
            self.stalls.init_calls.note_call(now)
        elif isinstance(message, messages.TorchrunStarted):
            self.evidence_store.add_torchrun(node, message.torchrun)
            self.stalls.init_calls.note_call(now)
        elif isinstance(message, messages.RankEnded):
            self._take_death(node, message, now)
        elif isinstance(message, messages.Evidence):
            self.rounds.add(message.id, self.evidence_store.add_evidence(node, message.evidence))
        elif isinstance(message, messages.Stopping):
            self._take_stopping(node, message.why, now)
        elif isinstance(message, messages.Signalled):
            self.rank_signal.note_answer(node, message)
        elif isinstance(message, messages.Finished):
            catalogue.check_end(message.verdicts, message.exit_code)
            self._take_finished(node, message.exit_code, message.verdicts, now)
            self.closing.note_leaving(session, message.checkpoint, now)

    async def lost(self, session: Session) -> None:
        self.closing.forget(session)
        node = session.node
        if self.sessions.remove(session) and node is not None and node not in self.record.finished:
            self.liveness.note_closed(node, session, self.clock())
            self.record.add_event("lost", f"{self.record.node_name(node)} has closed its connection", node)

    async def tick(self, now: float) -> None:
        self.closing.let_leavers_go(now)
        self.notices.send_alive(now)
        if self.record.exit_code is not None or self.liveness.is_waiting(now):
            return
        if self.state != RunState.CLOSING:
            self._advance(now)
        elif now >= self.closing.leave_at or self._answering_nodes() <= self.record.finished.keys():
            self.record.end(self.closing.exit_code or 0)

    def _advance(self, now: float) -> None:
        """Do what is due in WATCHING and JUDGING, at every tick."""
        self.rank_signal.tick(now)
        self._look_for_missing(now)
        self._look_for_lost(now)
        if (done := self.rounds.end_if_done(now)) is not None:
            for node, crash in done.own_crashes:
                self._take_death(node, crash, now)
            self._settle(done, now)
            self.rounds.start(now)
        if self.state == RunState.CLOSING or self._act_on_eviction(now):
            return
        busy = (
            self.rounds.current is not None or not self.eviction.is_settled(now) or self._ranks_have_time(now)
        )
        if self.state == RunState.JUDGING:
            if now >= self.attempts.judge_at and not busy:
                self._judge_deaths(now)
        elif self._have_all_ended and not busy:
            self._conclude()
        else:
            self._watch_ranks(now)

    async def stop(self, why: str) -> None:
        if self.state == RunState.CLOSING or self.record.agreed is None:  # then the gate ends the job
            return
        if self._are_nodes_leaving(self.clock()):
            self.stop_why = why  # usually the job ends with them in a moment, and they are the reason
        else:
            self._stop(why)

    def _stop(self, why: str) -> None:
        self.stop_why = None
        self.record.add_event("end", f"told to stop{why and ': ' + why}")
        self._request("stop", self.clock())

    def _are_nodes_leaving(self, now: float) -> bool:
        """Whether nodes are being stopped, or have closed their connections and may yet come back."""
        out = self.record.finished.keys() | self.liveness.gone
        closed = {lost.node for lost in self.liveness.lost if lost.closed}
        evicted = set(self.eviction.nodes) if self.eviction.is_settled(now) else self.record.members
        stopping = (evicted or self.record.members) if self.eviction.has_begun else set()
        return bool((closed | stopping) - out)

    @property
    def is_deliberating(self) -> bool:
        """Whether a verdict is still to come, even if all nodes may have left."""
        waits = bool(self.liveness.lost) or self.liveness.is_waiting(self.clock())
        return waits or self.state == RunState.JUDGING or self.rounds.current is not None

    # ---------------------------------------------------------------- messages

    def _take_join(self, session: Session, join: messages.Join, now: float) -> None:
        node = join.node
        if join.regroups != self.record.regroups:  # it has missed the end of an earlier attempt
            session.send(BACK_TO_GATE)
            return
        if node not in self.record.finished:
            self.supervisor_join.note_joined(node, join.host, now)
            self.liveness.note_joined(node, session, now)
        self.evidence_store.note_clock(node, join.at)
        session.node = node
        self.sessions.add(node, session)
        self.record.follow_nodes()
        self.rank_signal.note_joined(session, now)
        if self.closing.exit_code is not None:
            session.send(farewell(self.closing.exit_code, self.record.verdicts))

    def _take_heartbeat(self, node: int, heartbeat: messages.Heartbeat, now: float) -> None:
        beat = heartbeat.beat
        self.evidence_store.note_beat(node, beat)
        if beat.node in self.record.finished or beat.node in self.liveness.gone:
            return
        self.liveness.note_message(beat.node, now, sum(rank.completed for rank in beat.ranks))
        self.attempts.note_least_nodes(node, beat.least_nodes)
        if self.attempts.note_attempt(node, beat.attempt) and self.closing.exit_code is None:
            self._take_new_ranks(beat, now)
        if node not in self.attempts.behind:  # otherwise its ranks belong to the attempt before
            self.stalls.add(beat, now)
        # Ranks that are being ended move again, but the others are not waiting for them.
        self.record.note_beat(beat, node_wait(beat, time.time()) if self.closing.exit_code is None else None)
        self.record.follow_nodes()

    def _take_death(self, node: int, ended: messages.RankEnded, now: float) -> None:
        if self.evidence_store.is_known(node, ended.rank) or self.rounds.set_aside_crash(node, ended):
            return
        rank = self.evidence_store.add_death(node, ended.rank)
        end = rank.exit
        text = "has finished" if end is not None and end.code == 0 else f"has ended: {complaint(rank)}"
        self.record.add_event("death", f"rank {rank.rank} {text}", node, rank.rank)
        # An end without an exit status is judged when the launch command ends: then its exit code is known.
        bad = end is None or (not end.by_us and (end.signal is not None or end.code not in (0, None)))
        if bad and node not in self.attempts.behind and not self.evidence_store.is_past(node, rank):
            self.attempts.note_death(now)
            self._expect_verdict(now)

    def _take_finished(self, node: int, exit_code: int, verdicts: list[Verdict], now: float) -> None:
        self.liveness.forget(node)
        if node in self.record.finished:
            return  # it repeats a message that may have been lost
        self.rounds.excuse(node)
        self.stalls.forget(node, now)
        self.record.note_finished(node, exit_code)
        if self.state == RunState.CLOSING:
            return
        if exit_code == Exit.STOPPED:
            self._act_on_eviction(now)
        elif verdicts:  # it could not start its ranks
            self.end(exit_code, verdicts, self._gather_evidence("death"), now)
        elif exit_code != Exit.OK:
            self._expect_verdict(now, anew=False)
        elif self.plan.keepers and node == 0:  # the launcher has seen all ranks of all nodes end well
            self._withdraw_notice()
            self.record.add_event("end", "all ranks have finished")
            self.end(Exit.OK, [], None, now)

    def _take_stopping(self, node: int, how: str, now: float) -> None:
        """Ask for evidence before the ranks end. Once it `is_settled`, we know whether other nodes follow."""
        self.record.add_event("ending", f"{self.record.node_name(node)} was told to stop: {how}", node)
        self.rank_signal.note_stopping(node, now)
        if self.eviction.note_stopping(node, how, now):
            self._request("stopping", now)
            who = self._ended_by()
            if who and who not in how:
                self.record.add_event("ending", f"the job is ended by {who}")

    def _ended_by(self) -> str:
        """Return who ends the job, if its folder or its scheduler knows; "" otherwise."""
        with contextlib.suppress(OSError, codec.ContractError):
            return codec.read(StopRequest, self.record.path(Files.STOP_REQUEST)).who
        return platforms.named(self.plan.platform).ended_by()

    def _act_on_eviction(self, now: float) -> bool:
        """Report nodes that are being stopped. Once one of them has ended, end the job and return True."""
        if self.eviction.is_due(now):
            self._report_eviction()
        if self._ranks_have_time(now):
            return False
        if (
            Exit.STOPPED not in self.record.finished.values()
            or not self.eviction.is_settled(now)
            or not self._is_over
        ):
            return False
        self.end(Exit.STOPPED, self.attempts.verdicts, self._gather_evidence("stop"), now)
        return True

    def _expect_verdict(self, now: float, anew: bool = True) -> None:
        """Ask all nodes for evidence after a bad end, before other ranks move on, and judge after SETTLE.

        `anew`: ask even if evidence of an earlier death is already safe.
        """
        if self.state == RunState.WATCHING:
            self._enter(RunState.JUDGING)
            self.attempts.judge_at = self.attempts.settles_at(now)
            if anew or self.attempts.failure is None or is_doubtful(self.attempts.failure.verdicts):
                self._request("death", now)

    def _take_ending(self, session: Session, why: str, now: float) -> None:
        """Ask all nodes for evidence, because the client is about to end the job."""
        self.ending = why or "no reason given"
        self.rank_signal.expect_end(now)
        self.record.add_event("ending", f"the job is about to be ended from outside: {self.ending}")
        self._request("ending", now, session)

    def _look_for_missing(self, now: float) -> None:
        """Give the verdict on nodes that have not come after the gate."""
        if (fault := self.supervisor_join.look(now)) is None:
            return
        verdicts, evidence = fault.verdicts, self._gather_evidence("joining")
        if fault.certain:
            self.end(exit_code(verdicts, self.record.finished), verdicts, evidence, now)
        else:
            self.notices.give(verdicts, evidence)

    def _look_for_lost(self, now: float) -> None:
        silent, back, gone, slept = self.liveness.look(now, lambda: self.stalls.is_waiting_for_silent(now))
        if slept:
            self.stalls.wake(now)
        for node in silent:
            self.record.update_node(node, detail="does not answer")
            self.record.add_event(
                "lost", f"{self.record.node_name(node)} {self.liveness.describe(node)}", node
            )
            self._request("silence", now)
        for node in back:
            self.record.update_node(node, detail="")
            self.record.add_event("lost", f"{self.record.node_name(node)} answers again", node)
            self.notices.withdraw()
        for node in gone:
            self.stalls.forget(node, now)
            self.record.update_node(node, detail="lost")
            self._expect_verdict(now)

    def _watch_ranks(self, now: float) -> None:
        if self.stop_why is not None and not self._are_nodes_leaving(now):
            self._stop(self.stop_why)  # they are back, or torchrun's agents go on without them
        moves = self.stalls.is_moving_again(now) or (
            self.attempts.has_past_verdicts and self.stalls.completed() > 0
        )
        if moves:
            self._withdraw_notice()
        failure = self.attempts.failure
        if failure is not None and now >= failure.due:
            self._notice(failure, "the launch command has not ended yet")
        odd = self.stalls.init_calls.take_due(now) and is_odd_start(self._gather_evidence("call"))
        if (why := "call" if odd else self.stalls.decide(now)) is not None:
            self._request(why, now)

    def _withdraw_notice(self) -> None:
        if self.notices.withdraw():
            self.record.add_event("notice", "the job is moving again")

    # ---------------------------------------------------------------- evidence and verdicts

    def _request(self, why: str, now: float, client: Optional[Session] = None) -> None:
        if self.state != RunState.CLOSING:
            self.rounds.request(why, now, client)
        elif client is not None:
            self._answer([client], self.record.evidence, self.record.verdicts)

    def _collect(self, wanted: EvidenceRound) -> Set[int]:
        nodes = self._answering_nodes() - self.record.finished.keys()
        for node, room in dump_room(nodes, self.record.verdicts, self.record.evidence).items():
            self.sessions.send(node, messages.Collect(wanted.id, wanted.why, COLLECT, room))
        return nodes

    def _settle(self, done: EvidenceRound, now: float) -> None:
        """Act on a finished round of evidence, by its reason. Deaths are judged later, at `judge_at`."""
        evidence = self._gather_evidence(done.why, done)
        if done.why in ("still", "deadline") and not nothing_moves(evidence):
            self.stalls.stand_down(now, at_least=computing_for(evidence))
        elif done.why == "call":
            self.notices.give(never_meet(evidence, self.record.complain), evidence)
        elif done.why in ("still", "silence", "apart"):
            launching_for = self.stalls.launching_for(now)
            deadline_text = self.stalls.deadline_text(now, time.time()) if done.why == "still" else ""
            self.notices.give(judge(evidence, self.record.complain), evidence, launching_for, deadline_text)
        elif done.why == "deadline":
            # A rank that failed may leave the others, or itself, hanging: then the failure is what happened.
            verdicts = self.attempts.pick_surer(judge(evidence, self.record.complain))
            code = catalogue.exit_code(verdicts[0]) if verdicts else Exit.HANG
            self.end(code, verdicts, evidence, now)
        elif done.why == "stop":
            self.end(Exit.STOPPED, self.attempts.verdicts, evidence, now)
        elif done.why == "ending":
            self._report_ending(evidence)
            self._answer(done.clients, evidence, self.attempts.verdicts)
        elif done.why == "asked":
            verdicts = judge(evidence, self.record.complain)
            self._answer(done.clients, evidence, verdicts)
            if not done.clients:
                self.notices.give(verdicts, evidence)

    def _answer(self, to: list[Session], evidence: Optional[JobEvidence], verdicts: list[Verdict]) -> None:
        """Send the present bundle to these clients. Only a verdict replaces the bundle on disk."""
        for client in to:
            bundle = replace(self.record.bundle(), evidence=evidence, verdicts=verdicts)
            client.send(messages.BundleAnswer(bundle_file.as_text(bundle)))

    def _gather_evidence(self, why: str, done: Optional[EvidenceRound] = None) -> JobEvidence:
        return self.evidence_store.gather(why, self.liveness.lost, done, self.attempts.behind)

    def _report_ending(self, evidence: JobEvidence) -> None:
        """Print the verdicts on a job that is about to be ended. If there are none, print how far it got."""
        assert self.ending is not None
        missing = self.record.waiting_for if self.record.agreed is None else None
        verdicts = judge(evidence, self.record.complain) or [node_evicted(evidence, self.ending, missing)]
        self.notices.give(verdicts, evidence)

    def _report_eviction(self) -> None:
        """Report the eviction, unless there already is a verdict."""
        self.eviction.noticed = True
        if self.attempts.verdicts or self.ending is not None:
            return
        evidence = self._gather_evidence("stopping")
        self.notices.give([node_evicted(evidence, self.eviction.how, evicted=self.eviction.nodes)], evidence)

    def _judge_deaths(self, now: float) -> None:
        evidence = self._gather_evidence("death")
        verdicts = judge(evidence, self.record.complain)
        is_stopping = self.ending is not None or self.eviction.has_begun
        # A signal handler may end its rank with any exit code.
        own_ends = {"rank-failed"} if self.eviction.has_begun and self.rank_signal.is_given else set()
        by_ending = is_stopping and all(verdict.code in BY_ENDING | own_ends for verdict in verdicts)
        stopped = dict.fromkeys(self.eviction.nodes, int(Exit.STOPPED))
        go_on = not self.attempts.is_over({**self.record.finished, **stopped}, self.liveness.gone)
        if by_ending and self.ending is None and stopped and go_on:
            self._enter(RunState.WATCHING)  # torchrun's agents can do without the nodes that are stopped
        elif by_ending:
            self.end(Exit.STOPPED, self.attempts.verdicts, evidence, now)
        elif not self._have_all_ended and self.attempts.put_off_judgement(verdicts, evidence, now):
            self._request("death", now)
        elif self._is_over:
            verdicts = self.attempts.pick_surer(verdicts)
            code = Exit.NODE_AT_FAULT if self.liveness.lost else exit_code(verdicts, self.record.finished)
            self.end(code, verdicts, evidence, now)
        else:
            self._let_go_on(verdicts, evidence, now)

    def _ranks_have_time(self, now: float) -> bool:
        """Whether ranks that got the job file's signal may still be writing their checkpoints."""
        return self.rank_signal.has_time_left(self.liveness.gone, now)

    @property
    def _is_over(self) -> bool:
        """Whether a launch command has ended with a failure and the others cannot go on without it."""
        return self.attempts.is_over(self.record.finished, self.liveness.gone)

    @property
    def _have_all_ended(self) -> bool:
        return self.record.members <= self.record.finished.keys() | self.liveness.gone

    def _let_go_on(self, verdicts: list[Verdict], evidence: JobEvidence, now: float) -> None:
        """Leave it to the launch commands whether to go on after the deaths or to end."""
        self._enter(RunState.WATCHING)
        known = self.attempts.failure
        verdicts = self.attempts.pick_surer(verdicts)
        due, by_agents = self.attempts.settles_at(now) + LAST, self.attempts.is_sending_away(evidence)
        failure = Failure(verdicts, evidence, due, by_agents)
        if known is not None:
            failure.due, failure.noticed = known.due, known.noticed
        self.attempts.failure = failure
        then = announced_restart(evidence)
        failed = {node: code for node, code in self.record.finished.items() if code != Exit.OK}
        if failed or self.liveness.gone:
            then = then or "the other nodes go on"
        for node in failed.keys() & self.sessions.nodes:
            # It waits for its verdict, while the others may go on for days.
            self.sessions.send(node, farewell(failed[node], verdicts))
        if then and not self._have_all_ended:
            self._notice(failure, then)

    def _notice(self, failure: Failure, then: str) -> None:
        """Say once what has failed in this attempt, and what happens next: `then`."""
        if failure.noticed or failure.by_agents or is_doubtful(failure.verdicts):
            return
        failure.noticed = True
        first, *others = failure.verdicts
        self.notices.give([first.continued(f"; {then}"), *others], failure.evidence)

    def _take_new_ranks(self, beat: Beat, now: float) -> None:
        """Forget the node's earlier ranks, because the launch command has started others in their place."""
        if beat.node in self.attempts.behind:
            self.attempts.follow(beat.node)
        else:
            self._begin_attempt(beat.node, now)
        self.evidence_store.forget_ranks(beat.node, {rank.pid for rank in beat.ranks})

    def _begin_attempt(self, node: int, now: float) -> None:
        """Begin the next attempt within the launch command: what was known about stalls no longer counts."""
        if self.attempts.first_death is not None:
            if self.state == RunState.JUDGING:
                evidence = self._gather_evidence("death")
                self._let_go_on(judge(evidence, self.record.complain), evidence, now)
            failure = self.attempts.failure
            if failure is not None and not failure.by_agents:
                self._notice(failure, "the launch command has started its ranks again")
                self.record.keep_failed_attempt(failure.verdicts, failure.evidence)
        elif self.state == RunState.JUDGING:
            self._enter(RunState.WATCHING)
        self.record.begin_launch_attempt()
        number = f"{self.record.attempt}.{self.record.launch_attempt}"
        self.record.add_event("attempt", f"the launch command has started ranks again: attempt {number}")
        self.attempts.begin(node)
        self.notices.forget()
        self.stalls = StallDetector(self.plan.watchdog, self.record.members)
        for out in self.record.finished.keys() | self.liveness.gone:
            self.stalls.forget(out, now)

    def _conclude(self) -> None:
        """End a job whose launch commands have all ended, at least one of them well."""
        self._enter(RunState.CLOSING)
        codes, gone = set(self.record.finished.values()), bool(self.liveness.gone)
        if Exit.OK in codes and not self._is_over:
            codes, gone = {Exit.OK}, False
        failure = self.attempts.failure
        if failure is not None:
            self.record.keep_failed_attempt(failure.verdicts, failure.evidence)
        if codes == {Exit.OK} and not gone:
            self._withdraw_notice()  # it may have ended well before its next heartbeat
        self.closing.conclude(codes, gone)

    def end(self, code: int, verdicts: list[Verdict], evidence: Optional[JobEvidence], now: float) -> None:
        self._enter(RunState.CLOSING)
        self.closing.begin(code, verdicts, evidence, now)
        self._answer(self.rounds.give_up(), self.record.evidence, self.record.verdicts)

    def _answering_nodes(self) -> Set[int]:
        """Return the connected nodes that have not been given up."""
        return self.sessions.nodes - {lost.node for lost in self.liveness.lost}
