"""The hub as a container of its own, which is started once and ended only by a signal.

Whatever it does, a sidecar that ends is started again; so a hub that has nothing to do, or no more, waits.
As PID 1 it inherits what others leave behind, and hears no signal that it does not handle.
"""

from __future__ import annotations

import signal
from typing import Any, Optional

from ddplaunch.agent.system import processes

_END = (signal.SIGTERM, signal.SIGINT)
_OTHERS = (signal.SIGHUP, signal.SIGUSR2)


class Orders:
    """Knows whether we were told to end, from its making on; whoever is to obey looks when he can.

    `child`, where there is one, is told the same.
    """

    def __init__(self) -> None:
        self.given = False
        self.child: Optional[int] = None
        for number in _END:
            signal.signal(number, self._told)
        for number in _OTHERS:  # the nodes' affair
            signal.signal(number, signal.SIG_IGN)

    def wait(self) -> None:
        """Until we are told to end, or have been."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _END)  # from here on they wait for us, not we for them
        if not self.given:
            signal.sigwait(_END)

    def _told(self, number: int, _: Any) -> None:
        self.given = True
        if self.child is not None:
            processes.send(self.child, number)


def bury_children() -> None:
    """Leave it to the kernel: of processes that somebody runs in our container, the orphans are ours."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def idle(job: str, node: int) -> None:
    """Do nothing until told to stop, on all nodes but the first: all pods are of one template."""
    bury_children()
    orders = Orders()
    print(f"the hub of {job} is on node 0; on node {node} it has nothing to do", flush=True)
    orders.wait()
