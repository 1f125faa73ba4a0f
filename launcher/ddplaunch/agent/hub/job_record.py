"""The state of the job, and the files in which everybody else reads it.

The sessions of gate and run write here. The files follow by themselves, at most every `FLUSH_EVERY` seconds
and always with the last state. Every event is one line in the hub's log. If a write fails, for example on a
full disk, it is tried again and the job goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    CheckIn,
    Event,
    Exit,
    Files,
    JobEvidence,
    JobPace,
    JobPlan,
    JobStatus,
    LaunchAttempt,
    MeshResult,
    NodeStatus,
    NodeWait,
    Phase,
    PhaseName,
    RankPace,
    RendezvousSettings,
    Verdict,
    bundle_file,
    codec,
)
from ddplaunch.agent.diagnosis.catalogue import exit_code
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.agent.platforms import places
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.system.files import LogFile
from ddplaunch.agent.text.printable import printable

FLUSH_EVERY = 0.2
"""Seconds between two writes of the status: only people read it."""
HEARTBEAT = 10.0
"""Seconds after which an unchanged status is written again, to show that the hub is alive."""
_SAME = 2.0
"""Seconds by which the start of a wait may differ between heartbeats, because messages take time."""
_PACE_HOLDS = 30.0
"""Seconds after which the pace of a node's ranks is forgotten, for example because they have ended."""
_QUICK = 0.01
"""Seconds that a write may take. A slower one, as with thousands of nodes, also makes the pause longer."""
_KEPT_ROOM = {Files.STATUS: 1 << 16, Files.BUNDLE: 1 << 18}
"""Bytes to reserve on the disk for the last state of these files."""
KEPT_FAILED = 10
"""Failed attempts within the launch command to keep, the newest ones: a test suite may fail on purpose."""
KEPT_EVENTS = 2000
"""Events in the bundle; events.jsonl has them all."""


def _send_nothing(_: str) -> None:
    """Do nothing, because the job file names nobody who gets messages."""


class JobRecord:
    """The state of one job. Nothing else owns it. Once `exit_code` is set, the hub stops serving."""

    def __init__(self, plan: JobPlan, folder: str, attempt: int, regroups: int = 0) -> None:
        self.plan = plan
        self.attempt = attempt + regroups
        self.regroups = regroups  # how often newcomers have been let in
        self.newcomers: set[int] = set()  # those of `members` without whom the job ran before
        self.started = time.time()
        self.phase: PhaseName = Phase.STARTING
        self.since = self.started
        self.nodes = {
            n: NodeStatus(n, subjects.name(n, plan.names), since=self.started) for n in range(plan.nodes)
        }
        self.members = set(self.nodes)  # the nodes with which the job goes on
        self.finished: dict[int, int] = {}  # exit codes of the nodes whose launch commands have ended
        self.waiting_for: list[int] = []
        self.check_ins: dict[int, CheckIn] = {}
        self.mesh: list[MeshResult] = []
        self.passed: dict[str, dict[str, int]] = {}
        self.links: dict[str, dict[str, list[int]]] = {}
        self.refused: set[str] = set()  # addresses of clients that do not know the key
        self.agreed: Optional[RendezvousSettings] = None
        self.gate_passed = False
        self.gate_seconds: Optional[float] = (
            None  # from opening to release; None: not yet, or it was an earlier hub
        )
        self.evidence: Optional[JobEvidence] = None
        self.verdicts: list[Verdict] = []
        self._at_end: Optional[list[Verdict]] = None  # the same, without what is true until the end alone
        self.launch_attempt = 0  # how often the launch command has replaced ranks by new ones
        self.failed_attempts: list[LaunchAttempt] = []  # earlier launch attempts, those with failures
        self.paces: dict[int, tuple[float, list[RankPace]]] = {}  # by node, with the time when they came
        self.signal: Optional[str] = None  # which ranks got the job file's signal, and why
        self.exit_code: Optional[int] = None
        self.send_message: Callable[[str], None] = _send_nothing  # takes an Occasion
        self.decided: Optional[int] = None  # what `exit_code` will be, once the nodes have ended
        self._folder = folder
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._changed = True
        self._flushed = 0.0
        self._took = 0.0  # seconds, for the last write of the status
        self._complaints: set[str] = set()
        with self._writing(Files.RUN):
            os.makedirs(self.path(Files.RUN), exist_ok=True)
        self._log = LogFile(self.path(Files.EVENTS), lambda text: self.complain(f"the hub {text}"))
        self._keep_room()
        self.flush()

    # ---------------------------------------------------------------- what the sessions write

    def add_event(self, kind: str, text: str, node: Optional[int] = None, rank: Optional[int] = None) -> None:
        """Record an event and log it. `text` is one sentence for the user."""
        event = Event(time.time(), kind, printable(text), node, rank)
        self._events.append(event)
        self._log.write(codec.text(event).encode() + b"\n")
        self.log(f"{time.strftime('%H:%M:%S', time.localtime(event.at))} {event.text}")

    def note_signal(self, text: str) -> None:
        """Record that ranks got the job file's signal. `text` is one sentence."""
        self.signal, self._changed = text, True
        self.add_event("signal", text)

    def log(self, text: str) -> None:
        """Print lines to the hub's log. A closed pipe must not end the job."""
        try:
            print(printable(text, lines=True), flush=True)
        except (OSError, ValueError):
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open for life

    def complain(self, text: str) -> None:
        """Log a complaint, unless the same text was logged before, because failures tend to repeat."""
        if text not in self._complaints:
            self._complaints.add(text)
            self.log(text)

    def enter(self, phase: PhaseName) -> None:
        """Set the phase of the whole job."""
        if phase != self.phase:
            self.phase, self.since, self._changed = phase, time.time(), True

    def follow_nodes(self) -> None:
        """Set the job's phase to the earliest phase of the nodes that have not finished.

        After the release it never goes back to the gate, even if some nodes have not joined yet.
        """
        running = [self.nodes[number].phase for number in self.members - self.finished.keys()]
        if running:
            least: PhaseName = Phase.RENDEZVOUS if self.gate_passed else Phase.STARTING
            self.enter(max(least, min(running, key=Phase.ORDER.index), key=Phase.ORDER.index))

    def update_node(self, node: int, **changes: Any) -> None:
        """Change fields of a node's NodeStatus; `since` follows its phase, `standing` its detail."""
        old = self.nodes[node]
        if changes.get("phase", old.phase) != old.phase:
            changes.setdefault("since", time.time())
        if "detail" in changes:
            changes.setdefault("standing", None)
        new = dataclasses.replace(old, **changes)
        if new != old:
            self.nodes[node], self._changed = new, True

    def note_finished(self, node: int, exit_code: int) -> None:
        """Note that the node's launch command has ended with an exit code of `contract.Exit`."""
        self.finished[node] = exit_code
        self.update_node(node, phase=Phase.ENDED, exit_code=exit_code, detail="", waits=None)
        self.follow_nodes()

    def note_beat(self, beat: Beat, waits: Optional[NodeWait]) -> None:
        """Note a node's heartbeat. The pace changes all the time, so it does not write any file by itself."""
        old = self.nodes[beat.node].waits
        if waits and old and abs(waits.since - old.since) < _SAME:
            waits = dataclasses.replace(waits, since=old.since)
        self.update_node(beat.node, phase=beat.phase, detail="", waits=waits)
        if beat.paces:
            self.paces[beat.node] = time.monotonic(), beat.paces

    def wait_for(self, nodes: Iterable[int]) -> None:
        """Set the nodes for which the others wait."""
        nodes = sorted(nodes)
        if nodes != self.waiting_for:
            self.waiting_for, self._changed = nodes, True

    def remember(self, events: Iterable[Event]) -> None:
        """Take over the events of an earlier hub, which are already in Files.EVENTS."""
        self._events.clear()
        self._events.extend(events)

    def set_verdicts(
        self, verdicts: list[Verdict], evidence: Optional[JobEvidence] = None, until_end: str = ""
    ) -> None:
        """Replace the verdicts and their evidence; write the bundle at once.

        `until_end`: a fact of the first one that is true as long as the job runs.
        """
        self.verdicts, self._at_end = list(verdicts), None
        if until_end and verdicts:
            self.verdicts, self._at_end = [verdicts[0].with_facts([until_end]), *verdicts[1:]], self.verdicts
        self.evidence = evidence or self.evidence
        self.save()

    def begin_launch_attempt(self) -> None:
        """Count one more attempt within the launch command."""
        self.launch_attempt, self._changed = self.launch_attempt + 1, True

    def keep_failed_attempt(self, verdicts: list[Verdict], evidence: JobEvidence) -> None:
        """Keep what failed in the present attempt of the launch command, which goes on or has ended well."""
        kept = LaunchAttempt(self.launch_attempt, time.time(), self.with_machines(verdicts), evidence)
        self.failed_attempts = [*self.failed_attempts, kept][-KEPT_FAILED:]
        self.save()

    def with_machines(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return the verdicts with the machines of the pods that they name, where they are known."""
        machines = places.known_machines(self.nodes.values())
        return [verdict.on(machines) for verdict in verdicts]

    def decide(self, exit_code: int) -> None:
        """Note the exit code with which the job will end. The next `set_verdicts` writes it."""
        self.decided, self._changed = exit_code, True

    def end(self, exit_code: int) -> None:
        """End the job with this exit code of `contract.Exit`. Only the first call counts."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self.verdicts = self.verdicts if self._at_end is None else self._at_end
            self._take_room()
            self._blame()
            self.enter(Phase.ENDED)
            self.save()

    # ---------------------------------------------------------------- what others read

    @property
    def why(self) -> str:
        """Why the evidence of its verdicts was taken; "" without any."""
        return self.evidence.why if self.evidence is not None else ""

    def status(self) -> JobStatus:
        return JobStatus(
            job=self.plan.job,
            attempt=self.attempt,
            phase=self.phase,
            since=self.since,
            nodes=[self.nodes[n] for n in sorted(self.nodes)],
            started=self.started,
            updated=time.time(),
            waiting_for=self.waiting_for,
            verdicts=self.verdicts,
            exit_code=self.exit_code,
            decided=self.decided,
            why=self.why if self.decided is not None else "",
            gate_passed=self.gate_passed,
            pace=self._pace(),
            launch_attempt=self.launch_attempt,
            failed_attempts=[dataclasses.replace(each, evidence=None) for each in self.failed_attempts],
            signal=self.signal,
        )

    def _pace(self) -> Optional[JobPace]:
        return pace.of_job(self.present_paces()) if self.phase == Phase.RUNNING else None

    def present_paces(self) -> list[RankPace]:
        """Return the pace of each rank that has reported one lately."""
        since = time.monotonic() - _PACE_HOLDS
        return [each for at, ranks in self.paces.values() if at >= since for each in ranks]

    def bundle(self) -> Bundle:
        return Bundle(
            job=self.plan.job,
            attempt=self.attempt,
            nodes=self.plan.nodes,
            nproc_per_node=self.plan.nproc_per_node,
            started=self.started,
            written=time.time(),
            check_ins=[self.check_ins[n] for n in sorted(self.check_ins)],
            mesh=self.mesh,
            passed=self.passed,
            links=self.links,
            agreed=self.agreed,
            evidence=self.evidence,
            verdicts=self.verdicts,
            events=list(self._events),
            exit_code=self.exit_code,
            failed_attempts=self.failed_attempts,
        )

    @property
    def is_written(self) -> bool:
        """Whether the status file shows the last state."""
        return not self._changed

    def flush(self, patient: bool = False) -> None:
        """Write the status if it has changed. `patient`: do not write it if it was written a moment ago."""
        now = time.monotonic()
        pause = FLUSH_EVERY * max(1.0, self._took / _QUICK)
        due = self._changed or now - self._flushed >= HEARTBEAT
        if due and not (patient and now - self._flushed < pause):
            self._flushed = now
            with self._writing(Files.STATUS):
                codec.write(self.path(Files.STATUS), self.status())
                self._changed = False
            self._took = time.monotonic() - now

    def save(self) -> Bundle:
        """Write the status and the bundle now. Returns the bundle."""
        self._changed = True
        self.flush()
        bundle = self.bundle()
        with self._writing(Files.BUNDLE):
            bundle_file.write(self.path(Files.BUNDLE), bundle)
        return bundle

    def close(self) -> None:
        self._log.close()

    def _keep_room(self) -> None:
        """Reserve disk space for the result, because the disk may fill up while the job runs."""
        for name, size in _KEPT_ROOM.items():
            with self._writing(name), open(self._room(name), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def _take_room(self) -> None:
        """Rename the reserved space to the file: if it were freed, another process could take it."""
        for name in _KEPT_ROOM:
            with contextlib.suppress(OSError):
                os.replace(self._room(name), codec.unfinished(self.path(name)))

    def _room(self, name: str) -> str:
        return self.path(f"{name}.room")

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.complain(f"the hub cannot write {self.path(name)}: {error.strerror}")

    def node_name(self, node: int) -> str:
        """Return 'node 2 (n3)'."""
        return phrases.node(node, self.plan.names)

    def _blame(self) -> None:
        """Write the names of the nodes at fault, if any, so that a scheduler can exclude them."""
        blamed = {
            node
            for verdict in self.verdicts
            if exit_code(verdict) == Exit.NODE_AT_FAULT
            for node in verdict.nodes
        }
        names = [self.plan.names[node] for node in sorted(blamed) if node < len(self.plan.names)]
        if names:
            with self._writing(Files.FAULTY):
                codec.replace(self.path(Files.FAULTY), "".join(f"{name}\n" for name in names))

    def path(self, name: str) -> str:
        """Return the path of a file named in `contract.Files`."""
        return os.path.join(self._folder, name)
