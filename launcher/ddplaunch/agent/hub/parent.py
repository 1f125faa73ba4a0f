"""The hub's parent: it holds the listening socket, and starts the hub again when it is killed.

Peers that call meanwhile wait in the socket's backlog, so the address stays the same and no call is refused.
The parent writes no file and keeps nothing of the job: what fails the hub, a full disk or its own mistake,
cannot fail the parent. The new hub reads what the old one has written (`recall`); supervisors bring the rest.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Callable

from ddplaunch.agent.hub.sidecar import Orders
from ddplaunch.agent.system import processes

CRASHED = 1
"""Exit code of a hub that failed over its own mistake; no job ends by it."""
FROZEN = 30.0
"""Seconds without a sign of life after which a hub is killed: it hangs, or was stopped by a signal."""
_STARTS, _WITHIN = 5, 300.0
"""So many hubs may be killed within so many seconds; the next death is the last."""
_LOOK = 1.0


def keep(hub: Callable[[Callable[[], None], bool], int], orders: Orders) -> int:
    """Run `hub(alive, again)` in a process of its own, until it ends by itself. Returns its exit code.

    The hub calls `alive` every now and then; `again` is False for the first one. A hub that is killed too
    often is not started again: then we end as it did.
    """
    deaths: list[float] = []
    while True:
        child, pipe = _fork(hub, orders, bool(deaths))
        status = _attend(child, pipe)
        orders.child = None
        os.close(pipe)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != CRASHED:
            return os.WEXITSTATUS(status)
        now = time.monotonic()
        deaths = [*(each for each in deaths if now - each < _WITHIN), now]
        if len(deaths) > _STARTS:
            _say(f"the hub {_how(status)}, for the {len(deaths)}th time: it is not started again")
            return _end_likewise(status)
        _say(f"the hub {_how(status)}; it is started again")


def _fork(hub: Callable[[Callable[[], None], bool], int], orders: Orders, again: bool) -> tuple[int, int]:
    """The hub's process, and the pipe from which its signs of life are read."""
    reader, writer = os.pipe()
    us = os.getpid()
    sys.stdout.flush()
    # No order may come between the fork and the note of whom to pass it on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, processes.STOPPING)
    child = os.fork()
    orders.child = child or None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.STOPPING)
    if child == 0:

        def run() -> int:
            os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, from our parent
            processes.die_with_parent(us, signal.SIGKILL)
            os.close(reader)
            os.set_blocking(writer, False)
            return hub(lambda: _sign(writer), again)

        processes.run_and_exit(run, CRASHED)
    os.close(writer)
    return child, reader


def _sign(writer: int) -> None:
    try:
        os.write(writer, b".")
    except BlockingIOError:
        return  # our parent is frozen, too


def _attend(child: int, pipe: int) -> int:
    """The child's status, once it has ended. As PID 1 of a container we bury whatever else ends."""
    silent = 0
    while True:
        # Seconds are counted one by one: a parent that was frozen together with the hub has counted none.
        ready, _, _ = select.select([pipe], [], [], _LOOK)
        if not ready:
            silent += 1
        elif os.read(pipe, 4096):
            silent = 0
        else:
            return os.waitpid(child, 0)[1]
        if silent * _LOOK >= FROZEN:
            os.kill(child, signal.SIGKILL)
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                break


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by signal {os.WTERMSIG(status)}"
    return "has failed over a mistake of its own"


def _end_likewise(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number  # PID 1 of a container outlives its own signals


def _say(text: str) -> None:
    try:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
    except (OSError, ValueError):
        return  # the reader of the hub's log is gone
