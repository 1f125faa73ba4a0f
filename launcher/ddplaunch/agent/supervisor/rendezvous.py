"""Looks up the address at which ranks rendezvous: what the name resolves to, and which process has the port.

A resolver may take half a minute, so each look-up has a thread of its own. The supervisor's loop takes the
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

RESOLVER_PATIENCE = 4.0
"""Seconds for the resolver. If a name takes longer, it counts as unanswered."""


class Lookups:
    """Look-ups in the background, one per address, because each scans /proc for 10 ms or more."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Rendezvous] = queue.SimpleQueue()
        self._waiting: dict[tuple[str, Optional[int]], list[tuple[Rank, float]]] = {}

    def begin(self, rank: Rank) -> None:
        """Begin to look up the rank's rendezvous, if that has an address."""
        made = rank.rendezvous
        if made is None or not made.address:
            return
        asking = self._waiting.setdefault((made.address, made.port), [])
        asking.append((rank, made.at))
        if len(asking) == 1:
            try:
                threading.Thread(target=self._look, args=(made,), daemon=True).start()
            except RuntimeError:  # the ranks have used up all threads: nothing is known of the address
                self._done.put(made)

    def finished(self) -> Iterator[Rank]:
        """Yield the ranks whose look-up has ended since the last call, with `rendezvous` filled in."""
        while not self._done.empty():
            lookup = self._done.get()
            for rank, at in self._waiting.pop((lookup.address, lookup.port)):
                made = rank.rendezvous
                if made is not None and made.at == at:
                    rank.rendezvous = dataclasses.replace(
                        made, resolved=lookup.resolved, unresolved=lookup.unresolved, holder=lookup.holder
                    )
                    yield rank

    def _look(self, made: Rendezvous) -> None:
        result = made
        try:
            result = look_up(made)
        finally:
            self._done.put(result)


def look_up(rendezvous: Rendezvous) -> Rendezvous:
    """Return it with the addresses of its name and the holder of its port. Takes PATIENCE at most."""
    try:
        addresses = resolve.resolve(rendezvous.address, time.monotonic() + RESOLVER_PATIENCE)
    except resolve.UnknownNameError:
        return dataclasses.replace(rendezvous, unresolved="NXDOMAIN")
    except resolve.UnansweredNameError:
        return dataclasses.replace(rendezvous, unresolved="timeout")
    own = {address.address for address in read.addresses()}
    here = [each for each in addresses if each in own or resolve.is_loopback(each)]
    holder = _stranger_at(rendezvous.port) if here and rendezvous.port else ""
    return dataclasses.replace(rendezvous, resolved=addresses, holder=holder)


def _stranger_at(port: int) -> str:
    """Return the holder of the port, unless that is a process of this job."""
    holder = holder_of_port(port)
    if holder is None or holder.pid in (os.getpid(), *processes.descendants(os.getpid())):
        return ""
    return holder.text
