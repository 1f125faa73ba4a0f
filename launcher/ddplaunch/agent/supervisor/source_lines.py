"""Reads the source at which threads stand, its lines and its loops, where the rank itself would read it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any, Callable

from ddplaunch.agent.contract import Frame, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import loops, source_file
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.printable import printable

WAIT = 0.5
"""Seconds for all files: they may lie on the storage that has stopped to answer."""
_LONGEST = 160
_LARGEST = 4 << 20
"""Bytes of a file that is read."""
_LINES = 200
_LOOP = 6
"""Lines of a loop, at most, to a sleep in it."""
_FILES = 16
"""Whose loops are looked for."""


class SourceLines:
    """Reads in a thread of its own. Once that does not come back, nothing more is read."""

    def __init__(self) -> None:
        self._stuck = False

    def of(self, ranks: Iterable[RankEvidence]) -> dict[str, str]:
        """Return text by "FILE:LINE" of each thread's innermost frame, and of its innermost of the user."""
        wanted = {(frame, rank.pid) for rank in ranks if rank.alive for frame in _frames(rank)}
        return self._within(_read, sorted(wanted, key=str)[:_LINES])

    def loops(self, ranks: Iterable[RankEvidence], before: float) -> dict[str, list[list[int]]]:
        """Return the loops in the files of the ranks' main threads; a file that was not read is left out."""
        files = {
            frame.file: rank.pid
            for rank in ranks
            if rank.alive
            for frame in reading.users(reading.main(rank.stacks))
        }
        return self._within(_read_loops, list(files.items())[:_FILES], before)

    def _within(self, read: Callable[..., None], wanted: list[Any], *more: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        if wanted and not self._stuck:
            reader = threading.Thread(target=read, args=(results, wanted, *more), daemon=True)
            with contextlib.suppress(RuntimeError):  # the ranks have used up all threads: no line is shown
                reader.start()
                reader.join(WAIT)
                self._stuck = reader.is_alive()
        return dict(results)


def key(frame: Frame) -> str:
    """Return the name of its line in NodeEvidence.lines."""
    return f"{frame.file}:{frame.line}"


def _frames(rank: RankEvidence) -> Iterable[Frame]:
    for stack in [*rank.stacks, *(stack for child in rank.children for stack in child.stacks)]:
        yield from _of_stack(stack)


def _of_stack(stack: Stack) -> Iterable[Frame]:
    yield from stack.frames[:1]
    for frame in (
        reading.user_frame(stack.frames),
        reading.worker_task(stack.frames),
        reading.loader_caller(stack.frames),
    ):
        if frame is not None:
            yield frame


def _read(texts: dict[str, str], wanted: list[tuple[Frame, int]]) -> None:
    for frame, pid in wanted:
        if key(frame) in texts:
            continue  # ranks that stand at one line share its text: nothing is read or parsed again
        with contextlib.suppress(OSError, ValueError):
            path, since = proc.path_from_here(pid, frame.file), _started(pid)
            text = line(path, frame.line, since)
            if "sleep(" in text:
                text = _loop(path, frame.line, since)[:_LONGEST] or text
            if text:
                texts[key(frame)] = text


def _loop(path: str, number: int, since: float) -> str:
    """Return the lines of the loop around a line, as far as this one: what it waits for is in them."""
    around = [begin for begin, end in loops.of(path, since) or () if begin <= number <= end]
    first = max((begin for begin in around if begin > number - _LOOP), default=number)
    return " ".join(line(path, each, since) for each in range(first, number + 1))


def _read_loops(by_file: dict[str, list[list[int]]], files: list[tuple[str, int]], before: float) -> None:
    for file, pid in files:
        lines = loops.of(proc.path_from_here(pid, file), before)
        if lines is not None:
            by_file[file] = lines


def line(path: str, number: int, unchanged_since: float) -> str:
    """Return a line of a regular file, counted from 1; "" where the file is another one by now.

    Raises OSError or ValueError where it cannot be read.
    """
    file = source_file.opened(path, _LARGEST, unchanged_since)
    if file is None:
        return ""
    with file:
        text = next(islice(file, max(number - 1, 0), None), b"").decode(errors="replace")
    return printable(text.strip())[:_LONGEST]


def _started(pid: int) -> float:
    """Return the moment of a process's start, in seconds since the epoch. Raises ValueError without it."""
    facts = proc.stat(pid)
    if facts is None:
        raise ValueError(pid)
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + facts.started / os.sysconf("SC_CLK_TCK")
