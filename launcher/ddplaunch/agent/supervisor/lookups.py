"""Looks up where the ranks rendezvous: what the name resolves to, and which process has the port.

A resolver may take half a minute, so each look-up has a thread of its own; the supervisor's loop takes the
results when they are there.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Optional

from ddplaunch.agent.contract import Rendezvous
from ddplaunch.agent.interfaces import read
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import processes, resolve

PATIENCE = 4.0
"""Seconds for the resolver. A name that takes longer counts as unanswered."""


class Lookups:
    """Ranks that go to the same place share one look-up: it scans /proc, for 10 ms of CPU and more."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Rendezvous] = queue.SimpleQueue()
        self._asked: dict[tuple[str, Optional[int]], list[tuple[Rank, float]]] = {}

    def begin(self, rank: Rank) -> None:
        """Look up the rank's rendezvous. One without an address has nothing to look up."""
        made = rank.rendezvous
        if made is None or not made.address:
            return
        asking = self._asked.setdefault((made.address, made.port), [])
        asking.append((rank, made.at))
        if len(asking) == 1:
            threading.Thread(target=self._look, args=(made,), daemon=True).start()

    def finished(self) -> Iterator[Rank]:
        """Ranks whose rendezvous has been looked up since the last time; it is filled in then."""
        while not self._done.empty():
            found = self._done.get()
            for rank, at in self._asked.pop((found.address, found.port)):
                made = rank.rendezvous
                if made is not None and made.at == at:
                    rank.rendezvous = dataclasses.replace(
                        made, resolved=found.resolved, unresolved=found.unresolved, holder=found.holder
                    )
                    yield rank

    def _look(self, made: Rendezvous) -> None:
        found = made
        try:
            found = looked_up(made)
        finally:
            self._done.put(found)


def looked_up(rendezvous: Rendezvous) -> Rendezvous:
    """Return it with what this machine knows of its address and port, after at most PATIENCE seconds."""
    try:
        found = resolve.resolve(rendezvous.address, time.monotonic() + PATIENCE)
    except resolve.UnknownNameError:
        return dataclasses.replace(rendezvous, unresolved="NXDOMAIN")
    except resolve.UnansweredNameError:
        return dataclasses.replace(rendezvous, unresolved="timeout")
    own = {address.address for address in read.addresses()}
    here = [each for each in found if each in own or resolve.is_loopback(each)]
    holder = _stranger_at(rendezvous.port) if here and rendezvous.port else ""
    return dataclasses.replace(rendezvous, resolved=found, holder=holder)


def _stranger_at(port: int) -> str:
    """Return who listens there, unless it is a process of this node's part of the job."""
    holder = holder_of_port(port)
    if holder is None or holder.pid in (os.getpid(), *processes.descendants(os.getpid())):
        return ""
    return holder.text
