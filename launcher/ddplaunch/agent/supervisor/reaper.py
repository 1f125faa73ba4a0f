"""The outer of the supervisor's two processes: small enough not to fail, it cleans up after the inner one.

Each of the two ends with the other. Whichever is killed, the other one ends all processes of the job. Both
are subreapers, so orphans become their children and cannot escape, not even as daemons.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.system import processes, signals
from ddplaunch.agent.system.signals import PAUSES, Received, SignalReader

PATIENCE = 2.0
"""Seconds between SIGTERM and SIGKILL for processes that are left."""
_UNKILLABLE = 10.0
"""Seconds to wait for killed processes that hang in the kernel."""


class SentSignal(NamedTuple):
    """A signal that has reached the outer process. `who`: its sender, in words; empty: not known."""

    number: int
    who: str = ""
    to_group: bool = False  # all processes of our group got it
    at: float = 0.0  # time.monotonic()


class Outer(NamedTuple):
    """The outer process, as the inner one sees it. `pipe` brings signals, and ends with the outer one."""

    pid: int
    pipe: int

    def read(self) -> Optional[list[SentSignal]]:
        """Return the signals that have come since the last call; None if the outer process is gone."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return []
        return [SentSignal(*json.loads(line)) for line in data.splitlines()] if data else None


def guard(inside: Callable[[Outer], int], by_pipe: bool = True, keeps: bool = False) -> int:
    """Run `inside` in a process of its own and return its exit code. No descendant survives it.

    Signals reach it through its pipe. Without `by_pipe`, signals that request an end are sent to it directly.
    `keeps`: whatever it leaves running is meant to go on.
    """
    processes.adopt_orphans()
    reader = SignalReader({*signals.FORWARDED, signal.SIGCHLD})
    outer = os.getpid()
    pipe, writer = os.pipe()
    os.set_blocking(pipe, False)
    os.set_blocking(writer, False)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(writer)
        reader.close()
        processes.run_and_exit(lambda: _below(Outer(outer, pipe), inside), Exit.WORKER_FAILED)
    os.close(pipe)
    try:
        status = _attend(child, reader, writer if by_pipe else None)
    finally:
        reader.close()  # the signals stay blocked for whatever comes next, such as the node's gate
        os.close(writer)
    if keeps and os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    left = end_all(PATIENCE, _reap)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    sys.stderr.write(
        f"error: ddplaunch's supervisor was killed by signal {os.WTERMSIG(status)}; "
        f"everything it had started was ended{' but ' + left if left else ''}\n"
    )
    return Exit.WORKER_FAILED


def _below(outer: Outer, inside: Callable[[Outer], int]) -> int:
    os.setpgid(0, 0)  # a signal to our process group comes only once, from the outer process
    processes.adopt_orphans()
    processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
    return inside(outer) if os.getppid() == outer.pid else Exit.WORKER_FAILED


def end_all(patience: float, reap: Callable[[], None]) -> str:
    """End every descendant: SIGTERM, `patience` seconds later SIGKILL. Returns a clause on those that stay.

    `reap` has to reap those that have ended, and may read their exit status.
    """
    us = os.getpid()
    begun = time.monotonic()
    terminated: set[int] = set()
    while True:
        reap()
        left = processes.descendants(us)
        if not left:
            return ""
        waited = time.monotonic() - begun
        if waited > patience + _UNKILLABLE:
            return f"processes {', '.join(map(str, left))} hang in the kernel and outlive SIGKILL"
        for pid in left:
            if waited >= patience:
                processes.send(pid, signal.SIGKILL)
            elif pid not in terminated:
                terminated.add(pid)
                processes.send(pid, signal.SIGTERM)
                processes.send(pid, signal.SIGCONT)
        time.sleep(0.02)


def _attend(child: int, reader: SignalReader, pipe: Optional[int]) -> int:
    """Return the child's wait status. Tell it about signals, and reap all others: orphans become ours."""
    poll = select.poll()
    poll.register(reader.fileno(), select.POLLIN)
    pausing = False
    while True:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if pid == child and not os.WIFSTOPPED(status):
                return status
            if pid == child and pausing:
                os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT, which we pass on
        poll.poll()
        for received in reader.read():
            if received.number == signal.SIGCHLD:
                continue
            pausing = received.number in PAUSES or (pausing and received.number != signal.SIGCONT)
            _tell(child, received, pipe)


def _tell(child: int, received: Received, pipe: Optional[int]) -> None:
    if pipe is None:
        if received.number in processes.STOPPING:
            processes.send(child, received.number)
        return
    who = "" if received.sender == os.getppid() else signals.sender(received)
    sent = SentSignal(received.number, who, received.to_group, time.monotonic())
    try:
        os.write(pipe, json.dumps(sent).encode() + b"\n")
    except (BlockingIOError, BrokenPipeError):
        return  # there are thousands of signals at once, or the child is ending
    if received.number == signal.SIGCONT:
        processes.send(child, signal.SIGCONT)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
