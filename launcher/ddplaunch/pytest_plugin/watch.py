"""Watches the ranks among this process's children, judges them when none moves, and then ends them.

It does a supervisor's work in a thread of pytest's own process, which is the parent of all ranks. It must not
reap a child, because the test waits for it. Until a child with the hook connects, the thread sleeps.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddplaunch.agent.contract import Env, RankEvidence, WatchdogPlan
from ddplaunch.agent.diagnosis import verdict_text
from ddplaunch.agent.supervisor import rank_evidence
from ddplaunch.agent.supervisor.collector import Collector, Look
from ddplaunch.agent.supervisor.heartbeats import Poller, build_beat, wait_for
from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line
from ddplaunch.agent.supervisor.launch import LaunchContext, with_hook
from ddplaunch.agent.supervisor.output import Console
from ddplaunch.agent.supervisor.rank_roles import Candidates
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.sampling import Sampler
from ddplaunch.agent.supervisor.without_hub import WithoutHub
from ddplaunch.agent.system import proc, processes
from ddplaunch.agent.text.redact import NO_SECRETS
from ddplaunch.plan.plan import adhoc

_BEAT = 1.0
_ANSWER = 0.1
_EVIDENCE = 3.0
"""Seconds for the evidence of all ranks."""


class Lookout:
    """The hook's files, and the socket to which hooks connect: one of each for all tests of a session.

    The socket's name must not change: processes that multiprocessing's forkserver forks have the environment
    of an earlier test.
    """

    def __init__(self, folder: str) -> None:
        """Write the hook's files to `folder`."""
        self.place = LaunchContext(folder, 0)
        self.place.prepare()
        self.messages: list[tuple[Line, HookMessage]] = []
        self.hooks = Hooks(lambda line, message: self.messages.append((line, message)))


class NewCandidates(Candidates):
    """Candidates among the processes that a test has started, not among those that were there before it.

    Ranks of a fixture that outlives a test keep their numbers in the environment as long as they live. They
    idle, or wait for the next test that needs them: neither is a hang of this test.
    """

    def __init__(self, is_older: Callable[[int], bool]) -> None:
        super().__init__()
        self._is_older = is_older

    def _add(self, pid: int, **facts: Any) -> None:
        if not self._is_older(pid):
            super()._add(pid, **facts)


class Watch:
    """The watch over one test, from when it is made, which changes the environment, until `close`."""

    def __init__(self, lookout: Lookout, timeout: float) -> None:
        self._place = lookout.place
        self._messages = lookout.messages
        self._hooks = lookout.hooks
        self._plan = adhoc(["pytest"], "pytest", WatchdogPlan(notice_after=timeout, kill_after=timeout)).job
        self._before = {name: os.environ.get(name) for name in (Env.HOOK, "PYTHONPATH")}
        self._older = {(pid, _started(pid)) for pid in processes.descendants(os.getpid())}
        os.environ.update(with_hook(dict(os.environ), self._place, f"{self._hooks.name},any"))
        self._found: list[str] = []
        self._closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="ddplaunch", daemon=True)
        self._thread.start()

    def take(self) -> str | None:
        """Return the verdict and the stacks, once; None: the ranks move, or there are none."""
        found, self._found = self._found, []
        return "\n".join(found) or None

    def close(self) -> None:
        """End the watch, and restore the environment."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._hooks.drop_all()
        self._messages.clear()

    def _run(self) -> None:
        with Path(os.devnull).open("wb") as null:
            console = Console(null.fileno(), NO_SECRETS)  # the test's output belongs to pytest
            while not self._closing:
                self._listen()
                if self._messages:  # even after a verdict, because the test may start ranks again
                    tracker = RankTracker(self._plan, 0, self._place, self._hooks, console)
                    tracker.candidates = NewCandidates(self._is_older)
                    self._watch(tracker)

    def _is_older(self, pid: int) -> bool:
        """Whether the process was there before the test. Its pid alone may be another's by now."""
        return (pid, _started(pid)) in self._older

    def _watch(self, tracker: RankTracker) -> None:
        sampler = Sampler()
        collector = Collector(0, self._plan.python, self._hooks, sampler, lambda: None)
        poller = Poller(tracker, self._hooks, sampler, collector)
        alone = WithoutHub(self._plan, self._place, 0, 0)
        next_beat = 0.0
        while not self._closing:
            self._listen()
            self._take_messages(tracker)
            tracker.take_ended()
            if time.monotonic() < next_beat:
                continue
            next_beat = time.monotonic() + _BEAT
            tracker.discover()
            poller.ask()
            self._hooks.listen(_ANSWER)
            poller.sample()
            if not any(not rank.placeholder for rank in tracker.alive):
                alone = WithoutHub(self._plan, self._place, 0, 0)
            elif alone.must_end(build_beat(0, tracker), math.inf):
                look = Look(time.monotonic() + _EVIDENCE)
                evidence = collector.collect(list(tracker.ranks), tracker.phase, look, None, [])
                judged = alone.judge_hang(evidence)
                if judged is not None:
                    self._found += verdict_text.block(judged[1], True)
                    self._found += [line for rank in evidence.ranks for line in _stack(rank)]
                    self._end_children(tracker)
                    return

    def _listen(self) -> None:
        wait_for([self._hooks.fileno(), self._wake])
        self._hooks.listen()

    def _take_messages(self, tracker: RankTracker) -> None:
        received, self._messages[:] = list(self._messages), []
        for line, message in received:
            if self._is_older(line.pid):  # an earlier test's, still about to start
                if line.is_open:
                    self._hooks.drop(line)
                continue
            if "hello" in message:
                tracker.note_connected(line)
            if "spawned" in message:
                tracker.note_spawned(line, message["spawned"], message["parent"])
            rank = tracker.note_rendezvous(line, message["rendezvous"]) if "rendezvous" in message else None
            rank = rank or tracker.rank_of(line)
            if rank is not None and "passed" in message:
                rank.note_passed()
            if "raised" in message:
                if rank is not None:
                    rank.add_exception(rank_evidence.exception_from(message["raised"], handled=False))
                line.send(b"go")

    def _end_children(self, tracker: RankTracker) -> None:
        """End the ranks and what they have started, and let the test's other processes end by themselves.

        multiprocessing's resource tracker, which later tests need, ignores SIGTERM.
        """
        family = {pid for rank in tracker.alive for pid in (rank.pid, *processes.descendants(rank.pid))}
        for pid in processes.descendants(os.getpid()):
            if not self._is_older(pid):
                processes.send(pid, signal.SIGKILL if pid in family else signal.SIGTERM)


def _started(pid: int) -> int:
    stat = proc.stat(pid)
    return stat.started if stat is not None else 0


def _stack(rank: RankEvidence) -> list[str]:
    head = f"rank {rank.rank} (process {rank.pid})"
    if not rank.alive:
        return [f"{head} has ended"]
    main = next((stack for stack in rank.stacks if stack.main), None)
    if main is None:
        return [f"{head}: no stack"]
    frames = [f'  File "{each.file}", line {each.line}, in {each.name}' for each in reversed(main.frames)]
    return [f"{head}, most recent call last:", *frames]
