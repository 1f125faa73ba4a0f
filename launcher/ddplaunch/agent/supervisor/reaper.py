"""The outer of the supervisor's two processes: small enough not to fail, it cleans up after the inner one.

Each of the two ends with the other. Whichever is killed, the other ends all processes of the job: both are
subreapers, so orphans become their children and cannot escape, not even as daemons.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Callable

from ddplaunch.agent.contract import Exit
from ddplaunch.agent.system import processes

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
PATIENCE = 2.0
"""Seconds between SIGTERM and SIGKILL for processes that are left over."""
_UNKILLABLE = 10.0
"""Seconds to wait for killed processes that hang in the kernel."""


def guard(inside: Callable[[int], int]) -> int:
    """Run `inside(our pid)` in a process of its own and return its exit code; no descendant survives it."""
    processes.adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    reaper = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        processes.run_and_exit(lambda: _below(reaper, inside), Exit.WORKER_FAILED)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: processes.send(child, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    status = _wait_for(child)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # for who comes next, as the node's gate
    left = end_all(PATIENCE, _reap)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    sys.stderr.write(
        f"error: ddplaunch's supervisor was killed by signal {os.WTERMSIG(status)}; "
        f"everything it had started was ended{' but ' + left if left else ''}\n"
    )
    return Exit.WORKER_FAILED


def _below(reaper: int, inside: Callable[[int], int]) -> int:
    os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, from the guardian
    processes.adopt_orphans()
    processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
    return inside(reaper) if os.getppid() == reaper else Exit.WORKER_FAILED


def end_all(patience: float, reap: Callable[[], None]) -> str:
    """End every descendant: SIGTERM, after `patience` seconds SIGKILL. Returns a clause on those that stay.

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


def _wait_for(child: int) -> int:
    """Return the child's wait status. Reap all other children meanwhile: orphans are ours."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
