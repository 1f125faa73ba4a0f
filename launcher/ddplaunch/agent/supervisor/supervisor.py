"""The supervisor of one node: one loop for output, ranks, the hub's orders, and the end.

`agent.cli` calls it after the gate, in the inner of the two processes of `reaper`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Callable, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import (
    REGROUP,
    Exit,
    Files,
    JobPlan,
    LaunchEnd,
    NodeEvidence,
    Verdict,
    codec,
    messages,
)
from ddplaunch.agent.contract.bundle_file import MOST_DUMPS
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.platforms import termination
from ddplaunch.agent.supervisor import ends, hub_link, rank_evidence, ranks, reaper
from ddplaunch.agent.supervisor.collector import Collector, Look
from ddplaunch.agent.supervisor.ends import HOLD, Launchers, is_dying
from ddplaunch.agent.supervisor.heartbeats import BEAT, POLL, Poller, build_beat, wait_for
from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line
from ddplaunch.agent.supervisor.hub_link import HubLink
from ddplaunch.agent.supervisor.launch import LaunchContext, LaunchError, LaunchStreams, start, volume_folder
from ddplaunch.agent.supervisor.output import Console
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.rendezvous import Lookups, Torchruns
from ddplaunch.agent.supervisor.sampling import Sampler
from ddplaunch.agent.supervisor.signal_relay import RankSignal, SignalRelay, is_stopped
from ddplaunch.agent.supervisor.without_hub import WithoutHub
from ddplaunch.agent.system import processes, secrets, signals
from ddplaunch.agent.transport.endpoints import Endpoint

_DISCOVER, _MISTAKES = 2.0, 5
HASTE = 3.0
"""Seconds for evidence about an end, if no launcher is held."""


def main(
    plan: JobPlan,
    folder: str,
    node: int,
    attempt: int,
    key: bytes,
    hub: Sequence[Endpoint],
    streams: Optional[LaunchStreams] = None,
) -> int:
    """Run and watch node `node`'s part of the job. Returns an Exit code. No process that it started survives.

    `hub`: the hub's addresses; empty if there is none. After REGROUP the node goes back to the gate.
    """

    def inside(outer: reaper.Outer) -> int:
        place = LaunchContext(folder, node, streams, volume_folder(plan, os.environ))
        redactor = secrets.redactor(plan.hidden, os.environ)
        console = Console(sys.stdout.fileno(), redactor)
        log, regroups = partial(console.log, f"{node}/ddplaunch"), place.regroups
        link = HubLink(hub, key, attempt, node, log, redactor, regroups)
        return Supervisor(plan, place, attempt + regroups, outer, console, link).run()

    return reaper.guard(inside, keeps=bool(plan.keep_background))


class Supervisor:
    def __init__(
        self,
        plan: JobPlan,
        place: LaunchContext,
        attempt: int,
        outer: reaper.Outer,
        console: Console,
        link: HubLink,
    ) -> None:
        self.plan = plan
        self.place = place
        self.node = node = place.number
        self.attempt = attempt
        self.console = console
        self.link = link
        self.redactor = link.redactor
        self.hook_messages: list[tuple[Line, HookMessage]] = []
        self.hooks = Hooks(lambda line, message: self.hook_messages.append((line, message)))
        self.tracker = RankTracker(plan, node, place, self.hooks, console, self.redactor)
        self.relay = SignalRelay(place, outer, self.tracker)
        self.rank_signal = RankSignal(plan, self.tracker, link.send, self.log)
        terminals = place.streams.terminals if place.streams is not None else frozenset[str]()
        self.sampler = Sampler(plan.watchdog.notice_after, terminals)
        self.collector = Collector(node, plan.python, self.hooks, self.sampler, self.watch_meanwhile)
        self.poller = Poller(self.tracker, self.hooks, self.sampler, self.collector)
        self.fresh_ends: list[Rank] = []
        self.launchers = Launchers()
        self.lookups = Lookups()
        self.torchruns = Torchruns()
        self.alone = WithoutHub(plan, place, node, attempt)
        self.in_trouble = False  # a rank of this attempt raised or ended badly, and there is evidence of it
        self.away_since: Optional[float] = None  # time.time() since when other ranks may have been ended
        self.verdict: Optional[tuple[int, list[Verdict]]] = None  # the hub's exit code and verdicts
        self.stop_code: Optional[int] = None
        self.before_stop: Optional[NodeEvidence] = None  # taken when the signal to stop came
        self.started = math.inf  # time.monotonic() when the launch command started
        self.requested_at = -math.inf  # when a signal last asked for the end
        self.kill_at: Optional[float] = None
        self.pass_at: Optional[tuple[float, reaper.SentSignal]] = None  # a signal to stop, and when it is due
        self.killed = False  # the launch command did not end by itself
        self.dismissed = False  # ended without a signal to this node: for a hang, or another node
        self.next_discovery = 0.0
        self.reported = 0  # the attempt within the launch command that the hub knows of
        self.mistakes = 0
        self.finished = self.noted = False  # `finished` was sent; the hub has noted it

    def run(self) -> int:
        self.relay.listen()
        self.link.call_first()
        try:
            start(self.plan, self.place, self.node, self.attempt, self.tracker, self.hooks.name)
        except (LaunchError, secrets.MissingSecretError, codec.ContractError, OSError) as error:
            hint = getattr(error, "hint", "")
            self.log(f"error: {error}" + (f"\n\nhint: {hint}" if hint else ""))
            self._keep_launch_end(getattr(error, "status", None))
            self.verdict = Exit.MISCONFIGURED, [ends.unlaunched_verdict(self.plan, self.node, error)]
            self._finish(*self.verdict)
            return self._leave(Exit.MISCONFIGURED)
        self.started = time.monotonic()
        while self.tracker.launch_exit is None:
            try:
                self._turn()
            except Exception:
                self._mistake()
        return self._conclude()

    def _mistake(self) -> None:
        """Log the current exception: a bug in the supervisor must not end the training."""
        self.mistakes += 1
        if self.mistakes <= _MISTAKES:
            self.log(f"an error in ddplaunch itself; the job goes on:\n{traceback.format_exc()}")
        time.sleep(POLL)

    def _turn(self) -> None:
        descriptors = self.tracker.end_descriptors()
        is_calm = self.tracker.logs.are_calm() and None not in descriptors and self.away_since is None
        self.poller.wait(
            [self.hooks.fileno(), self.link.fileno(), self.relay.fileno(), *descriptors], is_calm
        )
        self.collector.watch()
        # A hook connects before its program prints, so the output up to here is from processes that are known
        # below.
        self.tracker.logs.launch.mark()
        self.hooks.listen()
        self.note_ends()
        self._take_hook_messages()
        self._handle_ends()
        self._handle_signals()
        for order in hub_link.read_orders(self.link.receive(), self.log):
            self._obey(order)
        self.tracker.logs.read()
        self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        self.rank_signal.do_what_is_due()
        if self.pass_at is not None and now >= self.pass_at[0]:
            self._pass_late()
        if now >= self.next_discovery:
            self.next_discovery = now + (_DISCOVER if self.tracker.ranks else BEAT / 2)
            self.tracker.discover()
            self.torchruns.find()
            self._follow_attempts()
        if self.poller.is_question_due():
            self.poller.ask()
        elif self.poller.is_sample_due():
            self._sample()
            self.tracker.reap()
            self.link.connect_if_due()
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self.killed = True
            for rank in self.tracker.alive:
                processes.send(rank.pid, signal.SIGKILL)  # MPI's launcher may be on another node
            reaper.end_all(0.0, self._reap)

    # --- watching

    def _sample(self) -> None:
        self.poller.sample()
        self._follow_attempts()
        for rank in self.lookups.finished():
            self.link.send(messages.RendezvousCalled(rank_evidence.evidence_so_far(rank)))
        for found in self.torchruns.finished():
            self.link.send(messages.TorchrunStarted(found))
        own = build_beat(self.node, self.tracker)
        self.link.send(messages.Heartbeat(own))
        if self.verdict is None and self.stop_code is None and self.alone.must_end(own, self.link.down_for):
            self._end_alone()

    def _end_alone(self) -> None:
        """End a job that hangs and has no hub, judging by this node's evidence."""
        self.verdict = self.alone.judge_hang(self.collect_evidence(HASTE, dumps=MOST_DUMPS))
        if self.verdict is not None:
            self._print_verdicts(self.verdict[1])
            self._stop(self.verdict[0], messages.END_GRACE)

    def collect_evidence(
        self, seconds: float, why: str = "", dumps: int = 0, quick: bool = False
    ) -> NodeEvidence:
        """Return this node's evidence within `seconds`, without secrets because it also goes into files."""
        tracker, look = self.tracker, Look(time.monotonic() + seconds, quick, dumps, self.redactor.hide, why)
        evidence = self.collector.collect(
            list(tracker.ranks), tracker.phase, look, tracker.launch_exit, tracker.launch_output
        )
        evidence = dataclasses.replace(evidence, torchruns=self.torchruns.living(tracker.ranks))
        return self.redactor.hide(evidence)

    # --- ends

    def note_ends(self) -> None:
        """Note ranks that have ended. torchrun polls every 0.1 s: stop it before it ends other ranks.

        Once there is evidence of these, torchrun is stopped only for ranks that are about to end by
        themselves.
        """
        for rank in self.tracker.take_ended():
            self.fresh_ends.append(rank)
            missed = self.tracker.alive and (not self.in_trouble or any(map(is_dying, self.tracker.alive)))
            if ranks.is_bad_end(rank.exit) and missed and rank in self.tracker.ranks:
                self.launchers.hold(rank)

    def watch_meanwhile(self) -> None:
        """Note what happens to ranks while evidence is collected. It is handled afterwards."""
        self.note_ends()
        self.launchers.let_go_late()
        self.tracker.note_exceptions(self.hook_messages)

    def _take_hook_messages(self) -> None:
        """Handle the hooks' own messages: hello, an exception, the end."""
        received, self.hook_messages = self.hook_messages, []
        for line, message in received:
            self._introduce(line, message)
            self.tracker.note_exceptions([(line, message)])
            if "lost" in message:
                self.tracker.logs.lose(message["lost"])
            rank = self.tracker.rank_of(line)
            if "passed" in message and rank is not None:
                rank.note_passed()
            if "raised" in message:
                if rank is not None:
                    self._note_trouble()
                line.send(b"go")
            if "ending" in message and rank is not None:
                rank.printed, rank.repeats = True, False

    def _introduce(self, line: Line, message: HookMessage) -> None:
        """Note what a process is. The hub compares all ranks' calls of init_process_group at once."""
        if "hello" in message:
            self.tracker.note_connected(line)
        if "spawned" in message:
            self.tracker.note_spawned(line, message["spawned"], message["parent"])
        rank = self.tracker.note_rendezvous(line, message["rendezvous"]) if "rendezvous" in message else None
        self._follow_attempts()
        if rank is not None:
            self.lookups.begin(rank)
            self.link.send(messages.RendezvousCalled(rank_evidence.evidence_so_far(rank)))

    def _follow_attempts(self) -> None:
        """Tell the hub at once that the launch command has started new ranks in place of those that ended.

        What is known about the earlier ranks is sent first: the new ranks did none of it.
        """
        if self.reported == self.tracker.attempt:
            return
        self.note_ends()
        self._report_ends()
        self.reported = self.tracker.attempt
        self.in_trouble = False
        self.away_since = None if self.stop_code is None else self.away_since
        self.launchers.begin_attempt()
        self.alone.begin_attempt()
        self.link.forget(messages.RankEnded)
        self.link.send(messages.Heartbeat(build_beat(self.node, self.tracker)))

    def _note_trouble(self) -> None:
        """Collect evidence at the first exception or bad end of an attempt, before others react to it."""
        if not self.in_trouble:
            self.collect_evidence(HOLD, quick=True)
            self.in_trouble = True

    def _handle_ends(self) -> None:
        self._report_ends()
        self.launchers.let_go(self.tracker.ranks)

    def _report_ends(self) -> None:
        while self.fresh_ends:
            rank = self.fresh_ends.pop(0)
            assert rank.exit is not None
            self.tracker.logs.read_all()
            rank.excuse(self.away_since)
            is_present = rank in self.tracker.ranks
            if ranks.is_bad_end(rank.exit) and self.stop_code is None and is_present and self.tracker.alive:
                self._note_trouble()
                self.away_since = self.away_since or time.time()
            if not rank.placeholder:
                self.link.report(messages.RankEnded(rank_evidence.evidence_so_far(rank)), rank.pid)

    # --- orders

    def _obey(self, order: hub_link.Order) -> None:
        if isinstance(order, messages.Collect):
            # The signal to stop came before the order, so by now the ranks may be on their way out.
            kept = order.why == "stopping" and self.before_stop
            evidence = kept or self.collect_evidence(order.deadline, order.why, order.dumps)
            self.link.send(messages.Evidence(order.id, evidence))
        if isinstance(order, messages.SignalRanks):
            self.rank_signal.send_once()
        if isinstance(order, (messages.Noted, messages.End)):
            self.noted = True
            self.link.expect_hang_up()
        if isinstance(order, messages.Notice) and (
            self.stop_code is not None or self.tracker.launch_exit is not None
        ):
            return  # the order says that the job goes on
        if isinstance(order, (messages.Notice, messages.End)) and self.verdict is None:
            self._print_verdicts(order.verdicts, isinstance(order, messages.End))
            if isinstance(order, messages.End):
                self.verdict = order.exit_code, order.verdicts
                if order.exit_code == REGROUP:
                    self.log(f"newcomers can join: SIGTERM, SIGKILL after {order.grace:.0f} s, then the gate")
                # A command that is being ended by a signal which was passed on keeps the time that it was
                # given.
                if order.exit_code != Exit.STOPPED or self.stop_code != Exit.STOPPED:
                    self._stop(order.exit_code, order.grace)

    def _handle_signals(self) -> None:
        self.relay.read()
        while self.relay.waiting:
            sent = self.relay.waiting.pop(0)
            if self.relay.is_alone:  # the outer process was killed, so no caller waits for evidence
                reaper.end_all(reaper.PATIENCE, self._reap)
                os._exit(Exit.STOPPED)
            elif self.relay.asks_for_end(sent):
                self._end_requested(sent)
            else:
                if sent.number == signal.SIGCONT:
                    self.link.forgive_silence()
                if not self.rank_signal.is_named(sent.number):
                    self.relay.forward(sent, self.started)
                elif self.relay.is_for_ranks(sent):
                    self.rank_signal.send_again()
        self.relay.do_what_is_due()

    def _end_requested(self, sent: reaper.SentSignal) -> None:
        """Collect evidence, then pass on a signal that asks for the end. A second Ctrl-C ends everything."""
        request = self.relay.request_of(sent)
        is_final = request is not None and request.final
        # The user's own command line has all the time that it would have without us.
        is_patient = not (self.plan.launch or is_final)
        now, before = time.monotonic(), self.requested_at
        self.requested_at = now
        if self.stop_code is not None:
            self.stop_code = Exit.STOPPED if self.stop_code == REGROUP else self.stop_code
            if is_final and self.kill_at in (None, math.inf):
                self.kill_at = now + ends.STOP_GRACE
            # Slurm sends SIGTERM twice at a time limit; that counts as one.
            if sent.number == signal.SIGINT or is_patient:
                self.relay.pass_on(sent)
            if sent.number == signal.SIGINT and now - before < ends.STOP_GRACE:
                self.kill_at = now + ends.HURRIED
            return
        who, name = self.relay.describe(sent), signals.name(sent.number)
        grace = "" if is_patient else f", SIGKILL after {ends.STOP_GRACE:.0f} s"
        warning = self.plan.signal if self._stops_single_nodes else None
        first = f"{warning.name}, {warning.before:.0f} s for the ranks, " if warning is not None else ""
        self.log(f"told to stop by {who}: evidence first, then {first}{name}{grace}")
        self.link.report(messages.Stopping(who))
        self.before_stop = self.collect_evidence(ends.STOP_EVIDENCE)
        self.link.report(messages.Evidence(0, self.before_stop))
        if warning is not None and self.tracker.launch_exit is None:
            self._begin_stop(Exit.STOPPED, sent)
            self.pass_at = now + warning.before, sent
            self.rank_signal.send_once()
        else:
            self._stop(Exit.STOPPED, math.inf if is_patient else ends.STOP_GRACE, sent)

    def _pass_late(self) -> None:
        """Pass on a signal to stop: the ranks have had their time since the job file's signal."""
        assert self.pass_at is not None
        (_, sent), self.pass_at = self.pass_at, None
        self._stop(Exit.STOPPED, ends.STOP_GRACE, sent)

    def _stop(self, code: int, grace: float, sent: Optional[reaper.SentSignal] = None) -> None:
        """Send SIGTERM to the launch command, or pass on `sent`; after `grace` seconds, SIGKILL to all."""
        self._begin_stop(code, sent)
        self.pass_at = None
        self.kill_at = time.monotonic() + grace
        launch = self.tracker.launch
        if launch is None:
            self.tracker.dismissed = True
            for rank in self.tracker.alive:
                processes.send(rank.pid, signal.SIGTERM)
        elif self.tracker.launch_exit is None:
            if sent is not None:
                self.relay.pass_on(sent)
            else:
                processes.send(self.place.group_of(launch.pid), signal.SIGTERM)
            if sent is None or is_stopped(launch.pid):
                processes.send(self.place.group_of(launch.pid), signal.SIGCONT)

    def _begin_stop(self, code: int, sent: Optional[reaper.SentSignal]) -> None:
        if self.stop_code is None:
            self.stop_code = code
            self.dismissed = sent is None
            self.launchers.stopping = True
            self.away_since = self.away_since or time.time()

    # --- the end

    def _conclude(self) -> int:
        """After the launch command, end all processes and get the hub's verdict. Returns the exit code."""
        self._handle_ends()
        if self.tracker.launch_exit is not None and self.tracker.launch_exit.code != 0:
            self._handle_signals()  # the end of a whole job may have reached the launch command first
        if self.stop_code is not None and self.tracker.launch_exit is not None:
            self.tracker.launch_exit = dataclasses.replace(self.tracker.launch_exit, by_us=True)
        self._keep_launch_end()
        if self.tracker.alive:
            self.collect_evidence(HASTE, quick=True)
        self._end_background()
        self.away_since = self.away_since or time.time()
        self._end_rest()
        self.tracker.finish_output()
        since = time.time() - (time.monotonic() - self.started)
        if lost := platforms.named(self.plan.platform).lost_files(self._ranks_folder, since):
            self.log(lost)
        self._handle_ends()
        code = self.stop_code
        if code is None:
            code = ends.node_exit_code(self.tracker, self.collector.oom_kills())
        if code == Exit.WORKER_FAILED and self.rank_signal.is_due and self._stops_single_nodes:
            # Another node is being stopped, and a handler may end its rank with any exit code.
            code = self.stop_code = Exit.STOPPED
        if code != Exit.OK and self.verdict is None and self.stop_code is None:
            code = self._wait_for_verdict(code)
        elif code == Exit.OK and self.node == 0 and termination.wanted():
            code = self._wait_for_others()
        return self._leave(code)

    @property
    def _stops_single_nodes(self) -> bool:
        return platforms.named(self.plan.platform).stops_single_nodes

    @property
    def _ranks_folder(self) -> str:
        with contextlib.suppress(OSError):  # it was removed
            return self.place.workdir(self.plan) or os.getcwd()
        return "/"

    def _end_background(self) -> None:
        """Log what the launch command has left running, and what is ended now; the rest may end by itself."""
        if self.plan.keep_background or self.stop_code is not None or self.tracker.alive:
            return
        deadline = time.monotonic() + ends.LINGER
        while (left := processes.descendants(os.getpid())) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        if left:
            self.log(self.redactor.hide(ends.describe_left_running(left, own_command=not self.plan.launch)))

    def _end_rest(self) -> None:
        """End what the launch command has left, unless that is meant to go on."""
        if self.plan.keep_background and self.stop_code is None:
            return
        self._await_handlers()
        if left := reaper.end_all(reaper.PATIENCE, self._reap):
            self.log(left)

    def _await_handlers(self) -> None:
        """Let processes that handle SIGTERM end by themselves, after a signal that was passed on.

        They may have got it as well, from their shell's trap or through their group. They may be writing a
        checkpoint, and another SIGTERM would interrupt that. A second Ctrl-C ends the wait.
        """
        if self.kill_at != math.inf:  # we were asked to end, or it is urgent
            return
        deadline, logged = time.monotonic() + ends.STOP_GRACE, False
        while time.monotonic() < min(deadline, self.kill_at or 0.0):
            self._reap()
            left = processes.descendants(os.getpid())
            saving = [pid for pid in left if signals.has_handler(pid, signal.SIGTERM)]
            if not saving:
                return
            if not logged:
                logged = True
                self.log(ends.describe_awaited(saving))
            self._handle_signals()
            time.sleep(0.02)

    def _keep_launch_end(self, unstarted: Optional[int] = None) -> None:
        """Write how the launch command ended, for `ddplaunch run`, which ends with the same exit code.

        `unstarted`: a shell's exit code for a command that cannot be started.
        """
        end = self.tracker.launch_exit
        kept = LaunchEnd(unstarted, None)
        if end is not None:
            kept = LaunchEnd(end.code, end.signal, self.killed, self.dismissed)
        if end is not None or unstarted is not None:
            with contextlib.suppress(OSError):  # the disk is full
                codec.write(os.path.join(self.place.node, Files.LAUNCH_END), kept)

    def _reap(self) -> None:
        self.note_ends()
        self.tracker.reap()

    def _wait_for_verdict(self, code: int) -> int:
        """Wait for the hub's verdict, or judge alone without a hub. Returns the exit code that follows."""
        evidence = self.collect_evidence(HASTE, quick=True)
        self.link.report(messages.Evidence(0, evidence))
        self._finish(code)
        theirs = self.plan.signal.before if self.plan.signal is not None and self.rank_signal.is_due else 0.0
        self._await_hub(lambda: self.verdict is not None, theirs + ends.VERDICT_WAIT)
        if self.verdict is None:
            self.verdict = self.alone.judge_end(code, evidence)
            self._print_verdicts(self.verdict[1])
        if all(verdict.code == "unknown" for verdict in self.verdict[1]):
            self.log("no rank explains this end; last output of the launch command:")
            self.console.log(f"{self.node}/launch", "\n".join(self.tracker.launch_output[-20:]))
        return self.verdict[0]

    def _wait_for_others(self) -> int:
        """Wait until no other node has work left, and return the exit code: in a pod the hub ends with us."""
        self._finish(Exit.OK)
        self._await_hub(lambda: self.verdict is not None, math.inf)
        return Exit.OK if self.verdict is None else self.verdict[0]

    def _await_hub(self, enough: Callable[[], bool], seconds: float) -> None:
        """Obey the hub until `enough()`, for at most `seconds`, as long as there may be a hub."""
        deadline = time.monotonic() + seconds
        while not (enough() or self._must_end() or time.monotonic() >= deadline):
            if not self.link.may_speak:
                return
            self.link.connect_if_due()
            wait_for([self.link.fileno(), self.relay.fileno()])
            for order in hub_link.read_orders(self.link.receive(), self.log):
                self._obey(order)

    def _finish(self, code: int, verdicts: Sequence[Verdict] = ()) -> None:
        """Report this node's end, once. `verdicts`: why nothing was launched, which only this node knows."""
        if not self.finished:
            self.finished = True
            ended = self.away_since if self.node == 0 and code in (Exit.STOPPED, REGROUP) else None
            kept = ends.describe_checkpoint(self.plan, ended) if ended else ""
            self.link.report(messages.Finished(code, list(verdicts), kept))

    def _leave(self, code: int) -> int:
        self._finish(code)
        self._await_hub(lambda: self.noted, ends.NOTED)
        if self.stop_code == REGROUP:  # even if it was done a moment before
            code = Exit.STOPPED if self._must_end() else REGROUP
        elif termination.goes_last(self.node, code, bool(self.plan.min_nodes)):
            self.link.outlive(ends.LAST_WORDS, self._must_end)
        self.link.close()
        self.hooks.close()
        self.console.flush(ends.LAST_WORDS)
        termination.write(code, self.redactor.hide(self.verdict[1] if self.verdict else []))
        return code

    def _must_end(self) -> bool:
        self.relay.read()
        return any(self.relay.asks_for_end(sent) for sent in self.relay.waiting)

    def _print_verdicts(self, verdicts: list[Verdict], final: bool = True) -> None:
        if verdicts:
            self.log("\n".join(verdict_text.block(verdicts, final, self.plan.names)))

    def log(self, text: str) -> None:
        self.console.log(f"{self.node}/ddplaunch", text)
