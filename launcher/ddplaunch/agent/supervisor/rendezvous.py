"""How this node's ranks, and its torchruns, look for their peers: names, addresses, and who has the port.

A resolver may take half a minute, so each look-up has a thread of its own. The supervisor's loop takes the
results when they are there.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Optional

from ddplaunch.agent.contract import Rendezvous, Torchrun
from ddplaunch.agent.interfaces import read
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.supervisor.rank_roles import numbers_of
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes, resolve, torchrun
from ddplaunch.agent.system.background import Task

_PATIENCE = 4.0
"""Seconds for the resolver. If a name takes longer, it is unanswered, and who opens the store unknown."""


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
        addresses = resolve.resolve(rendezvous.address, time.monotonic() + _PATIENCE)
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


class Torchruns:
    """The torchruns below this process, also those of a script, but not those that a rank has started."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Torchrun] = {}  # by pid and start
        self._done: queue.SimpleQueue[tuple[tuple[int, int], Torchrun]] = queue.SimpleQueue()

    def find(self) -> None:
        """Look for new ones, and forget those that have ended."""
        present = set()
        waiting = proc.children(os.getpid())
        while waiting:
            pid = waiting.pop()
            stat = proc.stat(pid)
            if stat is None or numbers_of(pid) is not None:
                continue
            key = pid, stat.started
            # A shell may become torchrun later, by exec.
            if key in self._known or self._begin(key):
                present.add(key)
            else:
                waiting += proc.children(pid)
        self._known = {key: found for key, found in self._known.items() if key in present}

    def _begin(self, key: tuple[int, int]) -> bool:
        pid, _ = key
        found = torchrun.read_torchrun(pid, proc.words(pid), proc.environment(pid))
        if found is None:
            return False
        self._known[key] = found
        if found.backend == torchrun.C10D and found.endpoint and found.opens_store is None:
            Task(self._look_up, key, found, name="torchrun's endpoint")
        else:
            self._done.put((key, found))
        return True

    def _look_up(self, key: tuple[int, int], found: Torchrun) -> None:
        host, _ = torchrun.split_endpoint(found.endpoint)
        opens = torchrun.guesses_host(host, _PATIENCE)
        self._done.put((key, dataclasses.replace(found, opens_store=opens)))

    def finished(self) -> Iterator[Torchrun]:
        """Yield those of which all is known now, each once."""
        while not self._done.empty():
            key, found = self._done.get()
            if key in self._known:
                self._known[key] = found
                yield found

    def living(self, ranks: Sequence[Rank]) -> list[Torchrun]:
        """Return them all, with whether each has had workers."""
        launchers = {rank.parent for rank in ranks if not rank.placeholder}
        return [
            dataclasses.replace(found, has_started=pid in launchers or bool(proc.children(pid)))
            for (pid, _), found in self._known.items()
        ]
