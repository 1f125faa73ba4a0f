"""Finds the torchruns of this node, also those that a script starts, and how each looks for its peers."""

from __future__ import annotations

import dataclasses
import os
import queue
from collections.abc import Iterator, Sequence

from ddplaunch.agent.contract import Torchrun
from ddplaunch.agent.supervisor.rank_roles import numbers_of
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, torchrun
from ddplaunch.agent.system.background import Task

RESOLVER_PATIENCE = 4.0
"""Seconds for the resolver. If it takes longer, it is not known who opens the store."""


def is_torchrun(pid: int) -> bool:
    """Whether the process is torchrun, which waits for its peers and trains nothing itself."""
    return torchrun.is_process(_words(pid))


class Torchruns:
    """The torchruns below this process, but not those that a rank has started."""

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
        found = torchrun.read_torchrun(pid, _words(pid), proc.environment(pid))
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
        opens = torchrun.guesses_host(host, RESOLVER_PATIENCE)
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


def _words(pid: int) -> list[str]:
    return proc.text(pid, "cmdline").rstrip("\0").split("\0")
