"""Has faulthandler write the stacks of ranks, by a signal: it needs no GIL."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import Callable

from ddplaunch.agent.contract import Stack
from ddplaunch.agent.evidence import stacks
from ddplaunch.agent.supervisor.ranks import Rank

_SIGNAL = signal.SIGRTMIN + 6  # as the hook registers it
_WRITTEN = 0.1
"""Seconds without growth after which a dump counts as complete: it has no end mark."""


def ask(ranks: Iterable[Rank], until: float, meanwhile: Callable[[], None]) -> dict[int, list[Stack]]:
    """Return stacks by pid, of those that have written any by `until` (time.monotonic()).

    Only ranks whose hook has registered the handler are asked: the signal would end the others.
    """
    dumps: dict[int, _Dump] = {}
    for rank in ranks:
        if rank.line is not None and rank.line.fault_file:
            with contextlib.suppress(OSError):
                dump = _Dump(rank.line.fault_file)
                os.kill(rank.program, _SIGNAL)
                dumps[rank.program] = dump
    while time.monotonic() < until and False in {dump.is_whole() for dump in dumps.values()}:
        time.sleep(0.02)
        meanwhile()
    written = {pid: dump.read() for pid, dump in dumps.items()}
    return {pid: its for pid, its in written.items() if its}


class _Dump:
    """Text that faulthandler appends to a file from now on. Raises OSError where there is no such file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115 - until it is read
        self._begin = self._size = os.fstat(self._file.fileno()).st_size
        self._grown = time.monotonic()

    def is_whole(self) -> bool:
        size, now = os.fstat(self._file.fileno()).st_size, time.monotonic()
        if size > self._size:
            self._size, self._grown = size, now
        return self._size > self._begin and now - self._grown >= _WRITTEN

    def read(self) -> list[Stack]:
        with self._file as file:
            file.seek(self._begin)
            return stacks.from_faulthandler(file.read())
