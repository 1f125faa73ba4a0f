"""The hub as a process: a parent that holds the listening socket, and starts the hub again when it is killed.

Peers that call meanwhile wait in the socket's backlog, so the address stays the same and no call is refused.
The parent writes no file and keeps nothing of the job, so a full disk or a bug in the hub cannot end it. The
new hub reads the files of the old one (`recovery`); supervisors send the rest.

In a pod the hub is a container of its own, which is started once and ended only by a signal. Kubernetes
restarts a sidecar that ends, whatever its exit code, so a hub without work waits. As PID 1 it inherits
orphaned processes, and gets no signal that it does not handle.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any, Callable, Optional

from ddplaunch.agent.system import processes, signals

CRASHED = 1
"""Exit code of a hub that failed because of a bug in it. No job ends with this code."""
FROZEN = 30.0
"""If a hub writes no byte to its pipe for this many seconds, it hangs or was stopped by a signal, and is
killed."""
_STARTS, _WITHIN = 5, 300.0
"""How many hubs may be killed within how many seconds. After the next death, no further hub is started."""
_LOOK = 1.0


def run_and_restart(hub: Callable[[Callable[[], None], bool], int], stop: StopSignals) -> int:
    """Run `hub(alive, again)` in a process of its own until it ends by itself. Returns its exit code.

    The hub calls `alive` every now and then. `again` is False for the first hub. If a hub is killed too
    often, it is not started again, and we end as it did.
    """
    deaths: list[float] = []
    while True:
        child, pipe = _fork(hub, stop, bool(deaths))
        status = _attend(child, pipe)
        stop.child = None
        os.close(pipe)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != CRASHED:
            return os.WEXITSTATUS(status)
        now = time.monotonic()
        deaths = [*(each for each in deaths if now - each < _WITHIN), now]
        if len(deaths) > _STARTS:
            _log(f"the hub {_how(status)}, for the {len(deaths)}th time: it is not started again")
            return _end_likewise(status)
        _log(f"the hub {_how(status)}; it is started again")


def _fork(hub: Callable[[Callable[[], None], bool], int], stop: StopSignals, again: bool) -> tuple[int, int]:
    """Start the hub's process. Returns its pid, and the pipe on which it writes while it lives."""
    reader, writer = os.pipe()
    us = os.getpid()
    sys.stdout.flush()
    # A signal between the fork and the assignment would not be passed on to the child.
    signal.pthread_sigmask(signal.SIG_BLOCK, processes.STOPPING)
    child = os.fork()
    stop.child = child or None
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
        return  # our parent is frozen as well


def _attend(child: int, pipe: int) -> int:
    """Return the child's wait status once it has ended. As PID 1 of a container, also reap all others."""
    silent = 0
    while True:
        # Count rounds, not the clock: a parent that was frozen together with the hub has counted none.
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
    return "has failed by a fault of its own"


def _end_likewise(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number  # PID 1 of a container outlives its own signals


def _log(text: str) -> None:
    try:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
    except (OSError, ValueError):
        return  # the reader of the hub's log is gone


_END = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles the signals that end this process: sets `given`, calls `on_signal`, signals `child`."""

    def __init__(self) -> None:
        self.given = False
        self.on_signal: Callable[[], object] = lambda: None
        self.child: Optional[int] = None
        for number in _END:
            signal.signal(number, self._on_signal)
        for other in signals.FORWARDED - signals.CRASHES - signals.PAUSES - {*_END}:
            signal.signal(other, lambda *_: None)  # they are for the supervisors

    def wait(self) -> None:
        """Return when a signal that ends this process has come."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _END)  # from here on a signal stays pending for sigwait
        if not self.given:
            signal.sigwait(_END)

    def _on_signal(self, number: int, _: Any) -> None:
        self.given = True
        self.on_signal()
        if self.child is not None:
            processes.send(self.child, number)


def reap_children() -> None:
    """Have the kernel reap our children, because as PID 1 of a container we inherit the orphans."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def idle(job: str, node: int) -> None:
    """Do nothing until a signal comes. For all nodes but the first, because all pods have one template."""
    reap_children()
    stop = StopSignals()
    print(f"the hub of {job} is on node 0; on node {node} it has nothing to do", flush=True)
    stop.wait()
