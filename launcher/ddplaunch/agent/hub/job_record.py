"""The state of the job, and the files in which all others read it.

The sessions of gate and run write here; the files follow by themselves, at most every `FLUSH_EVERY` seconds
and always with the last state. Every event is one line of the hub's log. What cannot be written, because a
disk is full, say, is tried again, and the job goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Any, Optional

from ddplaunch.agent.contract import (
    Bundle,
    CheckIn,
    Event,
    Exit,
    Files,
    JobEvidence,
    JobPlan,
    JobStatus,
    MeshResult,
    NodeStatus,
    Phase,
    RendezvousSettings,
    Verdict,
    codec,
)
from ddplaunch.agent.diagnosis.catalogue import exit_code
from ddplaunch.agent.platforms import physical_host
from ddplaunch.agent.system import phrases
from ddplaunch.agent.system.log_file import LogFile
from ddplaunch.agent.text.printable import printable

FLUSH_EVERY = 0.2
"""Seconds between two writes of the status: people look at it, nobody reacts faster."""
HEARTBEAT = 10.0
"""Seconds after which the status is written though nothing has changed: so others see that the hub lives."""
_QUICK = 0.01
"""Seconds that a write may take. After one that took longer, as of thousands of nodes, so is the pause."""
_KEPT_ROOM = {Files.STATUS: 1 << 16, Files.BUNDLE: 1 << 18}
"""Bytes on the disk for the last state of these files."""
KEPT_EVENTS = 2000
"""Events in the bundle; events.jsonl has them all."""


class JobRecord:
    """The state of one job. `exit_code` is set by `end`, and the hub stops serving when it sees it."""

    def __init__(self, plan: JobPlan, folder: str, attempt: int) -> None:
        self.plan = plan
        self.attempt = attempt
        self.started = time.time()
        self.phase = Phase.STARTING
        self.since = self.started
        self.nodes = {
            n: NodeStatus(n, phrases.name(n, plan.names), since=self.started) for n in range(plan.nodes)
        }
        self.waiting_for: list[int] = []
        self.check_ins: dict[int, CheckIn] = {}
        self.mesh: list[MeshResult] = []
        self.passed: dict[str, dict[str, int]] = {}
        self.refused: set[str] = set()  # addresses of those who do not know the key
        self.agreed: Optional[RendezvousSettings] = None
        self.gate_passed = False
        self.evidence: Optional[JobEvidence] = None
        self.verdicts: list[Verdict] = []
        self.exit_code: Optional[int] = None
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

    # ---------------------------------------------------------------- what the sessions say

    def event(self, kind: str, text: str, node: Optional[int] = None, rank: Optional[int] = None) -> None:
        """Something happened: `text` is one sentence for people, and a line of the hub's log."""
        event = Event(time.time(), kind, printable(text), node, rank)
        self._events.append(event)
        self._log.write(codec.text(event).encode() + b"\n")
        self.say(f"{time.strftime('%H:%M:%S', time.localtime(event.at))} {event.text}")

    def say(self, text: str) -> None:
        """Print lines of the hub's log. A log whose reader is gone must not end the job."""
        try:
            print(printable(text, lines=True), flush=True)
        except (OSError, ValueError):
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open for life

    def complain(self, text: str) -> None:
        """Log the text as `say` does, but each text once: what fails now will fail again."""
        if text not in self._complaints:
            self._complaints.add(text)
            self.say(text)

    def enter(self, phase: str) -> None:
        """The whole job is in `phase` now."""
        if phase != self.phase:
            self.phase, self.since, self._changed = phase, time.time(), True

    def follow(self, but: Container[int]) -> None:
        """The job is where its hindmost node is, `but` for those that have ended.

        Never back at a gate that was passed, though a node has not said yet that it went on.
        """
        running = [node.phase for number, node in self.nodes.items() if number not in but]
        if running:
            least = Phase.RENDEZVOUS if self.gate_passed else Phase.STARTING
            self.enter(max(least, min(running, key=Phase.ORDER.index), key=Phase.ORDER.index))

    def node(self, node: int, **changes: Any) -> None:
        """`changes` are fields of NodeStatus; `since` follows the phase."""
        old = self.nodes[node]
        if changes.get("phase", old.phase) != old.phase:
            changes.setdefault("since", time.time())
        new = dataclasses.replace(old, **changes)
        if new != old:
            self.nodes[node], self._changed = new, True

    def wait_for(self, nodes: Iterable[int]) -> None:
        """These nodes are what the others wait for."""
        nodes = sorted(nodes)
        if nodes != self.waiting_for:
            self.waiting_for, self._changed = nodes, True

    def remember(self, events: Iterable[Event]) -> None:
        """These have happened before, and are in Files.EVENTS."""
        self._events.clear()
        self._events.extend(events)

    def judge(self, verdicts: list[Verdict], evidence: Optional[JobEvidence] = None) -> None:
        """Replace the verdicts, and what they rest on; the bundle is written at once."""
        self.verdicts = list(verdicts)
        self.evidence = evidence or self.evidence
        self.save()

    def placed(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return the verdicts with the machines of the pods in them, where they are known."""
        return physical_host.placed(verdicts, physical_host.known(self.nodes.values()))

    def decide(self, exit_code: int) -> None:
        """The job shall end by this; written with the verdicts, which follow."""
        self.decided, self._changed = exit_code, True

    def end(self, exit_code: int) -> None:
        """The job is over with this exit code of `contract.Exit`. The first call counts."""
        if self.exit_code is None:
            self.exit_code = exit_code
            self._take_room()
            self._blame()
            self.enter(Phase.ENDED)
            self.save()

    # ---------------------------------------------------------------- what others read

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
            gate_passed=self.gate_passed,
        )

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
            agreed=self.agreed,
            evidence=self.evidence,
            verdicts=self.verdicts,
            events=list(self._events),
            exit_code=self.exit_code,
        )

    @property
    def is_written(self) -> bool:
        """Whether the status file shows the last state."""
        return not self._changed

    def flush(self, patient: bool = False) -> None:
        """Write the status if it changed; `patient`: not when it was written a moment ago."""
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
        """Write status and bundle now; returns the bundle."""
        self._changed = True
        self.flush()
        bundle = self.bundle()
        with self._writing(Files.BUNDLE):
            codec.write(self.path(Files.BUNDLE), bundle)
        return bundle

    def close(self) -> None:
        self._log.close()

    def _keep_room(self) -> None:
        """A disk that fills up meanwhile shall not take the result away."""
        for name, size in _KEPT_ROOM.items():
            with self._writing(name), open(self._room(name), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def _take_room(self) -> None:
        """The room becomes the file's own: set free, it would be anybody's for a moment."""
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
        """'node 2 (n3)'."""
        return phrases.node(node, self.plan.names)

    def _blame(self) -> None:
        """Tell a scheduler which nodes to do without. Only names help it, and only some of the nodes."""
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
