"""The supervisor of one node: one loop that carries output, watches ranks, hears the hub, and ends it all."""

from __future__ import annotations

import dataclasses
import math
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from ddplaunch.agent import codec, termination
from ddplaunch.agent.addresses import Address
from ddplaunch.agent.contract import Exit, JobPlan, NodeEvidence, Verdict
from ddplaunch.agent.supervise import describe, guardian, launch, mpi, notice, ranks
from ddplaunch.agent.supervise.beats import beat
from ddplaunch.agent.supervise.crew import Crew
from ddplaunch.agent.supervise.ends import HUB_SPEAKS, judge_alone, own_code
from ddplaunch.agent.supervise.gather import Gatherer
from ddplaunch.agent.supervise.hooks import Answer, Hooks, Line
from ddplaunch.agent.supervise.launch import LaunchError, Place
from ddplaunch.agent.supervise.launchers import Launchers
from ddplaunch.agent.supervise.link import Link
from ddplaunch.agent.supervise.output import Console
from ddplaunch.agent.supervise.ranks import Rank
from ddplaunch.agent.supervise.sampling import Sampler

POLL = 0.1
"""Seconds between two looks at what nothing announces: log files, and on old kernels deaths."""
BEAT = 1.0
_ANSWER = 0.1
"""Seconds given to the hooks before a sample is taken without their answer."""
_DISCOVER = 2.0
_MISTAKES = 5
HASTE = 3.0
"""Seconds for evidence while torchrun is stopped, or a dying rank is held."""
STOP_EVIDENCE = 5.0
STOP_GRACE = 30.0
"""Seconds for torchrun and the ranks to end by themselves when told to stop: they may write a checkpoint."""
LAST_WORDS = 10.0
"""Seconds for what is left to be said when the node's work is over."""


def main(plan: JobPlan, folder: str, node: int, attempt: int, key: bytes, hub: Sequence[Address]) -> int:
    """Run and watch node `node`'s part of the job. Returns an Exit code; nothing it started survives.

    `hub`: where it may be reached; empty where there is none.
    """

    def inside(parent: int) -> int:
        place = Place(folder, node)
        console = Console(sys.stdout.fileno())
        link = Link(hub, key, attempt, node, lambda text: console.say(f"{node}/ddplaunch", text))
        return Supervisor(plan, place, node, attempt, parent, console, link).run()

    return guardian.guard(inside)


class Supervisor:
    def __init__(
        self, plan: JobPlan, place: Place, node: int, attempt: int, parent: int, console: Console, link: Link
    ) -> None:
        self.plan = plan
        self.place = place
        self.node = node
        self.attempt = attempt
        self.parent = parent
        self.console = console
        self.link = link
        self.signals: list[int] = []
        self.heard: list[tuple[Line, Answer]] = []
        self.hooks = Hooks(lambda line, message: self.heard.append((line, message)))
        self.crew = Crew(plan, node, place, self.hooks, console)
        self.sampler = Sampler()
        self.gatherer = Gatherer(node, plan.python, self.hooks, self.sampler, self.note_ends)
        self.fresh_ends: list[Rank] = []
        self.launchers = Launchers()
        self.in_trouble = False  # a rank of this round of workers raised or ended badly
        self.away_since: Optional[float] = None  # since when others may have been told to end (time.time())
        self.verdict: Optional[tuple[int, list[Verdict]]] = None  # exit code and reasons, as the hub decided
        self.stop_code: Optional[int] = None
        self.kill_at: Optional[float] = None
        self.next_beat = 0.0
        self.next_discovery = 0.0
        self.sample_at: Optional[float] = None
        self.dumps = 0
        self.rounds = 0
        self.mistakes = 0
        self.finished = False

    # --- the whole

    def run(self) -> int:
        for number in guardian.FORWARDED:
            # What our caller chose to ignore (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda received, _: self.signals.append(received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, guardian.FORWARDED)
        self.link.call_first()
        try:
            self._start()
        except (LaunchError, codec.ContractError, OSError) as error:
            hint = getattr(error, "hint", "")
            self.say(f"error: {error}" + (f"\n\nhint: {hint}" if hint else ""))
            return self._leave(Exit.MISCONFIGURED)
        while self.crew.launch_exit is None:
            try:
                self._turn()
            except Exception:
                self._mistake()
        return self._conclude()

    def _start(self) -> None:
        self.place.prepare()
        agreed = self.place.agreed()
        words = launch.command(self.plan, self.node, self.attempt, agreed, self.place.folder)
        env = launch.environment(self.plan, self.node, self.attempt, agreed, self.place, os.environ)
        self.crew.launches_mpi = not self.plan.mpi and mpi.is_launcher(words)
        flags = ["ptrace"] if self.plan.watchdog.privileges == "ptrace" else []
        if self.plan.mpi:
            self.place.expect_keepers(self.node, self.attempt, ",".join([self.hooks.name, *flags]))
            if self.node != 0:
                return  # node 0 starts the ranks of all nodes
            env = mpi.environment(self.plan, env)
        else:
            flags += ["mpi"] if self.crew.launches_mpi else [] if launch.is_torchrun(words) else ["any"]
            env = launch.with_hook(env, self.place, ",".join([self.hooks.name, *flags]))
        workdir = self.plan.workdir or (self.place.source if os.path.isdir(self.place.source) else None)
        if self.plan.mpi and workdir == self.place.source:
            workdir = self.place.folder  # MPI's launcher wants it on all nodes; the keepers know their own
        self.crew.launch = launch.start(words, env, workdir, self.place.launch_log)

    def _mistake(self) -> None:
        """A mistake in watching must not end the training that is watched."""
        self.mistakes += 1
        if self.mistakes <= _MISTAKES:
            self.say(f"ddplaunch made a mistake, and goes on:\n{traceback.format_exc()}")
        time.sleep(POLL)

    def _turn(self) -> None:
        _wait_for([self.hooks.fileno(), self.link.fileno(), *(rank.fileno() for rank in self.crew.alive)])
        # A program says hello before it prints: what is there now is by somebody whose hello is heard below.
        self.crew.launch_tail.mark()
        self.hooks.listen()
        self.note_ends()
        self._hear()
        self._handle_ends()
        self._handle_signals()
        for kind, body in self.link.received():
            self._obey(kind, body)
        self.crew.read_output()
        self._by_the_clock()

    def _by_the_clock(self) -> None:
        now = time.monotonic()
        if now >= self.next_discovery:
            self.next_discovery = now + (_DISCOVER if self.crew.ranks else BEAT / 2)
            self.crew.discover()
        if self.sample_at is None and now >= self.next_beat:
            self.next_beat, self.sample_at = now + BEAT, now + _ANSWER
            self._ask()
        elif self.sample_at is not None and now >= self.sample_at:
            self.sample_at = None
            self._sample()
            self.crew.reap()
            self.link.keep()
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            for rank in self.crew.alive:
                guardian.send(rank.pid, signal.SIGKILL)  # MPI's launcher may be on another node
            guardian.end_all(0.0, self._reap)

    # --- watching

    def _ask(self) -> None:
        now = time.monotonic()
        for rank in self.crew.alive:
            suspicious = rank.progress.suspicious(now)
            if rank.line is not None:
                rank.line.ask(rank.question(suspicious))
            if suspicious:
                for line in self._children_of(rank):
                    line.ask(b"look")
        self.sampler.look_at_sockets(self.crew.alive)

    def _children_of(self, rank: Rank) -> Iterable[Line]:
        return [self.hooks.lines[pid] for pid in rank.children if pid in self.hooks.lines]

    def _sample(self) -> None:
        for rank in self.crew.alive:
            rank.progress.take(self.sampler.sample(rank, self.hooks.lines))
        pids = [pid for rank in self.crew.alive for pid in (rank.pid, rank.program, *rank.children)]
        self.sampler.forget_all_but(pids)
        self.gatherer.remember(pids)
        if self.link.up:
            self.link.send("beat", {"beat": codec.dump(beat(self.node, self.crew))})

    def evidence(self, seconds: float, in_haste: bool = False) -> NodeEvidence:
        """Of all ranks, within `seconds`."""
        return self.gatherer.node(
            list(self.crew.ranks.values()),
            self.crew.phase,
            time.monotonic() + seconds,
            self.crew.launch_exit,
            self.crew.launch_output,
            in_haste,
        )

    # --- ends

    def note_ends(self) -> None:
        """Record who has ended. torchrun looks every 0.1 s: it is stopped before it ends others over it."""
        for rank in self.crew.ended():
            self.fresh_ends.append(rank)
            if ranks.bad(rank.exit) and self.crew.alive:
                self.launchers.hold(rank)

    def _hear(self) -> None:
        """What hooks said unasked: hello, an exception, the end."""
        heard, self.heard = self.heard, []
        for line, message in heard:
            if "hello" in message:
                self.crew.join(line)
            rank = self.crew.rank_of(line)
            if "raised" in message:
                if rank is not None:
                    rank.add(describe.raised(message["raised"], handled=False))
                    self._in_trouble()
                line.send(b"go")
            if "ending" in message and rank is not None:
                rank.news = True
                if not line.mpi_ready:  # else it still has to meet the others in MPI_Finalize
                    self.launchers.hold(rank)

    def _in_trouble(self) -> None:
        """The first exception or bad end of a round: see how the others stand before they hear of it."""
        if self.rounds != self.crew.rounds:
            self.rounds, self.in_trouble, self.away_since = self.crew.rounds, False, None
        if not self.in_trouble:
            self.in_trouble = True
            self.evidence(HASTE, in_haste=True)

    def _handle_ends(self) -> None:
        while self.fresh_ends:
            rank = self.fresh_ends.pop(0)
            assert rank.exit is not None
            self.crew.read_output()
            rank.excuse(self.away_since)
            if ranks.bad(rank.exit) and self.stop_code is None and self.crew.alive:
                self._in_trouble()
                self.away_since = self.away_since or time.time()
            if not rank.stand_in:
                self.link.send("death", {"node": self.node, "rank": codec.dump(describe.so_far(rank))})
        self.launchers.let_go(self.crew.ranks.values())

    # --- orders

    def _obey(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "collect":
            evidence = self.evidence(float(body["deadline"]))
            self.link.send("evidence", {"id": body["id"], "evidence": codec.dump(evidence)})
        elif kind in ("notice", "end"):
            verdicts = [codec.load(Verdict, each) for each in body["verdicts"]]
            if verdicts and self.verdict is None:
                self.say("\n".join(notice.block(verdicts, kind == "end", self.plan.names)))
            if kind == "end" and self.verdict is None:
                self.verdict = int(body["exit_code"]), verdicts
                self._stop(int(body["exit_code"]), float(body["grace"]))

    def _handle_signals(self) -> None:
        while self.signals:
            number = self.signals.pop(0)
            if number == signal.SIGUSR2:
                self._dump()
            elif os.getppid() != self.parent:
                # The guardian was killed, and nobody waits for evidence any more.
                guardian.end_all(guardian.PATIENCE, self._reap)
                os._exit(Exit.STOPPED)
            elif self.stop_code is not None:
                # Somebody presses Ctrl-C again. Slurm says SIGTERM twice at a time limit, and means one.
                self.kill_at = 0.0 if number == signal.SIGINT else self.kill_at
            else:
                name = signal.Signals(number).name
                self.say(
                    f"told to stop by {name}: evidence first, then SIGTERM, SIGKILL after {STOP_GRACE:.0f} s"
                )
                self.link.send("stopping", {"why": name})
                evidence = self.evidence(STOP_EVIDENCE)
                self.link.send("evidence", {"id": 0, "evidence": codec.dump(evidence)})
                self._stop(Exit.STOPPED, STOP_GRACE)

    def _dump(self) -> None:
        """The evidence of now, into a file and to the hub; nothing is stopped."""
        evidence = self.evidence(STOP_EVIDENCE)
        path = os.path.join(self.place.node, f"evidence-{self.dumps}.json")
        self.dumps += 1
        codec.write(path, evidence)
        self.link.send("evidence", {"id": 0, "evidence": codec.dump(evidence)})
        self.say(f"evidence of {len(evidence.ranks)} ranks is in {path}")

    def _stop(self, code: int, grace: float) -> None:
        """SIGTERM to the launch command; `grace` seconds later SIGKILL to everything."""
        if self.stop_code is None:
            self.stop_code = code
            self.launchers.stopping = True
            self.away_since = self.away_since or time.time()
        self.kill_at = time.monotonic() + grace
        if self.crew.launch is not None and self.crew.launch_exit is None:
            for number in (signal.SIGTERM, signal.SIGCONT):
                guardian.send(-self.crew.launch.pid, number)
        elif self.crew.launch is None:
            self.crew.dismissed = True
            for rank in self.crew.alive:
                guardian.send(rank.pid, signal.SIGTERM)

    # --- the end

    def _conclude(self) -> int:
        """The launch command has ended: so must all that is left. Who explains it is the hub."""
        self._handle_ends()
        if self.crew.launch_exit is not None and self.crew.launch_exit.code != 0:
            self._handle_signals()  # who ends a whole job may have told the launch command first
        if self.stop_code is not None and self.crew.launch_exit is not None:
            self.crew.launch_exit = dataclasses.replace(self.crew.launch_exit, by_us=True)
        if self.crew.alive:
            self.evidence(HASTE, in_haste=True)
        self.away_since = self.away_since or time.time()
        left = guardian.end_all(guardian.PATIENCE, self._reap)
        if left:
            self.say(left)
        self.crew.finish_output()
        self._handle_ends()
        code = own_code(self.crew, self.gatherer.oom_kills()) if self.stop_code is None else self.stop_code
        if code != Exit.OK and self.verdict is None and self.stop_code is None:
            code = self._explained(code)
        elif code == Exit.OK and self.node == 0 and termination.wanted():
            code = self._last_of_all()
        return self._leave(code)

    def _reap(self) -> None:
        self.note_ends()
        self.crew.reap()

    def _explained(self, code: int) -> int:
        """Wait for the hub's verdict; without a hub, judge alone. Returns the exit code that follows."""
        evidence = self.evidence(HASTE, in_haste=True)
        self.link.send("evidence", {"id": 0, "evidence": codec.dump(evidence)})
        self._finish(code)
        self._wait_for_verdict(HUB_SPEAKS)
        if self.verdict is None:
            self.verdict = judge_alone(self.plan, code, evidence)
            if self.verdict[1]:
                self.say("\n".join(notice.block(self.verdict[1], True, self.plan.names)))
        if all(verdict.code == "unknown" for verdict in self.verdict[1]):
            self.say("no rank explains this end; the launch command's last words:")
            self.console.say(f"{self.node}/launch", "\n".join(self.crew.launch_output[-20:]))
        return self.verdict[0]

    def _last_of_all(self) -> int:
        """In a pod the hub ends with us; it says when the other nodes have no work left either."""
        self._finish(Exit.OK)
        self._wait_for_verdict(math.inf)
        return Exit.OK if self.verdict is None else self.verdict[0]

    def _wait_for_verdict(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.link.up and self.verdict is None and not self.signals and time.monotonic() < deadline:
            _wait_for([self.link.fileno()])
            for kind, body in self.link.received():
                self._obey(kind, body)

    def _finish(self, code: int) -> None:
        if not self.finished:
            self.finished = self.link.send("finished", {"node": self.node, "exit_code": code})

    def _leave(self, code: int) -> int:
        self._finish(code)
        if termination.goes_last(self.node, code):
            self.link.outlive(LAST_WORDS, lambda: bool(self.signals))
        self.link.close()
        self.hooks.close()
        self.console.flush(LAST_WORDS)
        termination.write(code, self.verdict[1] if self.verdict else [])
        return code

    def say(self, text: str) -> None:
        self.console.say(f"{self.node}/ddplaunch", text)


def _wait_for(descriptors: Iterable[Optional[int]]) -> None:
    """Until one is readable, or for POLL seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    poll.poll(POLL * 1000)
