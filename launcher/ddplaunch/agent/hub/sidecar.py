"""The hub as a container of its own, which is started once and ended only by a signal.

Kubernetes restarts a sidecar that ends, with whatever exit code; so a hub without work waits. As PID 1 it
inherits orphaned processes, and gets no signal that it does not handle.
"""

from __future__ import annotations

import signal
from typing import Any, Callable, Optional

from ddplaunch.agent.system import processes, signals

_END = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles signals that end this process: sets `given`, calls `on_signal`, passes them on to `child`."""

    def __init__(self) -> None:
        self.given = False
        self.on_signal: Callable[[], object] = lambda: None
        self.child: Optional[int] = None
        for number in _END:
            signal.signal(number, self._on_signal)
        for other in signals.FORWARDED - signals.CRASHES - signals.PAUSES - {*_END}:
            signal.signal(other, lambda *_: None)  # they are for the supervisors

    def wait(self) -> None:
        """Return when a signal to end has come."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _END)  # from here on a signal stays pending for sigwait
        if not self.given:
            signal.sigwait(_END)

    def _on_signal(self, number: int, _: Any) -> None:
        self.given = True
        self.on_signal()
        if self.child is not None:
            processes.send(self.child, number)


def bury_children() -> None:
    """Have the kernel reap our children: as PID 1 of a container we inherit the orphans."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def idle(job: str, node: int) -> None:
    """Do nothing until a signal, on all nodes but the first: all pods are of one template."""
    bury_children()
    stop = StopSignals()
    print(f"the hub of {job} is on node 0; on node {node} it has nothing to do", flush=True)
    stop.wait()
