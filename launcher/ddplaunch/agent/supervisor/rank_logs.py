"""Follows the output of the launch command and of each rank."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import os
import time
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.output import Console, Tail
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.redact import Redactor

_LAUNCH_KEPT = 40
"""Last lines of the launch command's own output."""
_CALM_AFTER = 2.0
"""Seconds without output after which a job counts as one that prints nothing."""
_READING = 0.05
"""Seconds to read at once of what the carrier has shown already."""
_CARRIED = 1.0
"""Seconds for the carrier to read what was printed until now."""
_RANK_KEPT, _LONGEST = 10, 200
"""Last lines of a rank's output, and characters of each, that a verdict may quote."""


class RankLogs:
    """Output files of this node. Lines of a file with several writers, as of mp.spawn, count for no rank.

    In the foreground another process shows the output and writes the files. Here they are read for evidence.
    """

    def __init__(self, node: int, place: LaunchContext, console: Console, redactor: Redactor) -> None:
        self._redactor = redactor
        self._node = node
        self._place = place
        self._console = console
        self.launch = Tail(place.launch_log)
        self._tails: dict[str, Tail] = {}
        self._writers: dict[str, list[Rank]] = {}  # path -> the ranks that write there
        self._lossy = False
        self._label = ""  # of the launch command's output, as its carrier knows it
        self._launch_streams: list[tuple[int, int]] = []
        if place.streams is not None:
            self.launch.shown = False
            for each in map(os.fstat, place.streams[1:3]):
                self._launch_streams.append((each.st_dev, each.st_ino))
        self._grew_at = time.monotonic()

    def follow(self, rank: Rank, of_mpi: bool) -> None:
        """Follow the rank's output files. `of_mpi`: an MPI launcher prints the rank's output."""
        files = self._files(rank)
        if files and self._place.streams is None:
            # From the first worker on, torchrun's own lines repeat ours. mpirun prints the ranks' output. A
            # rank without files may be gone already, and its output only in the launch command's log.
            self.launch.shown = self._place.launch_log in files or of_mpi
        for path in files:
            self._follow(path, rank)
        label = self._label_of(self._place.launch_log)
        if self._place.streams is not None and label != self._label:
            self._label = label
            self.catch_up(label=label)

    def _files(self, rank: Rank) -> list[str]:
        """Return the files that have what the rank prints."""
        files = proc.output_files(rank.program)
        if self._place.streams is None or rank.line is None:
            return files
        if rank.line.output_files:
            return [*files, *rank.line.output_files]
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{rank.program}/fd/{descriptor}")
                if (status.st_dev, status.st_ino) in self._launch_streams:
                    return [*files, self._place.launch_log]
        return files

    def forget(self, rank: Rank) -> None:
        """Stop counting output for the rank: it was replaced, or is no rank after all."""
        for writers in self._writers.values():
            if rank in writers:
                writers.remove(rank)

    def are_calm(self) -> bool:
        """Return whether there has been nothing new for a while, and all of it is on the console."""
        return time.monotonic() - self._grew_at >= _CALM_AFTER and self._console.empty

    def read(self) -> None:
        """Copy new output to the console, unless that is full."""
        if not self._console.full:
            for path, tail, keep in self._all():
                if self._read(path, tail, keep):
                    self._grew_at = time.monotonic()
                    self._spoke(path, tail)
                self._note_tracebacks(path, tail)
        self._console.flush()

    def _read(self, path: str, tail: Tail, keep: int) -> bool:
        write = self._to_console(path)
        is_new = tail.read(write, keep)
        deadline = time.monotonic() + _READING
        while self._place.streams is not None and tail.has_more and time.monotonic() < deadline:
            is_new = tail.read(write, keep) or is_new
        return is_new

    def read_all(self) -> None:
        """Read what was printed until now, as far as it is needed for evidence."""
        self.catch_up()
        self.read()

    def catch_up(self, **message: object) -> None:
        """Have the carrier bring the files up to date, and tell it something."""
        if self._place.streams is not None:
            self._place.streams.carry(_CARRIED, **message)

    def lose(self, reason: object) -> None:
        """Log once that a rank cannot write its output. Its file has a line wherever text is missing."""
        if not self._lossy:
            self._lossy = True
            why = printable(str(reason)[:_LONGEST])
            text = f"cannot write {self._place.ranks}: {why}; output is lost until it can; the job goes on"
            self._console.log(f"{self._node}/ddplaunch", text)

    def finish(self, ranks: Sequence[Rank], numbers: Callable[[int], int]) -> None:
        """Read all output that is left. `numbers`: rank of a local rank that was never seen alive."""
        by_local = {rank.local: rank for rank in ranks}
        pattern = os.path.join(glob.escape(self._place.ranks), "*", "attempt_*", "*", "std*.log")
        unseen: dict[str, int] = {}
        for path in glob.glob(pattern):
            local = path.split(os.sep)[-2]
            if local.isdecimal() and path not in self._tails:
                if int(local) in by_local:
                    self._follow(path, by_local[int(local)])
                else:
                    self._tails[path] = Tail(path, self._place.streams is None)
                    unseen[path] = numbers(int(local))
        for path, tail, keep in self._all():
            tail.close(self._to_console(path, unseen.get(path)), keep)
            self._spoke(path, tail)
            self._note_tracebacks(path, tail)

    def _follow(self, path: str, rank: Rank) -> None:
        if path != self._place.launch_log and path not in self._tails:
            self._tails[path] = Tail(path, self._place.streams is None)
        writers = self._writers.setdefault(path, [])
        if rank not in writers:
            writers.append(rank)

    def _all(self) -> Iterable[tuple[str, Tail, int]]:
        """Yield path, tail, and the number of last lines to keep."""
        yield self._place.launch_log, self.launch, _LAUNCH_KEPT
        for path, tail in self._tails.items():
            yield path, tail, _RANK_KEPT

    def _to_console(self, path: str, unseen: Optional[int] = None) -> Callable[[list[bytes]], None]:
        label = self._label_of(path) if unseen is None else str(unseen)
        return functools.partial(self._console.write, f"[{self._node}/{label}] ".encode())

    def _label_of(self, path: str) -> str:
        numbers = sorted({rank.number for rank in self._writers.get(path, [])})
        if not numbers:
            return "launch"
        return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"

    def _spoke(self, path: str, tail: Tail) -> None:
        writers = self._writers.get(path, [])
        for rank in writers if tail.last_line else ():
            # In a shared file it may be another rank's line: it counts for those that wrote just now.
            rank.prints(tail.fresh or [tail.last_line.encode()])
            if len(writers) == 1:
                rank.last_output = printable(self._redactor.hide(tail.last_line))
                rank.last_output_at = time.time()
                rank.last_lines = [*rank.last_lines, *self.quoted(tail.fresh)][-_RANK_KEPT:]
        tail.fresh.clear()

    def quoted(self, lines: Iterable[bytes]) -> list[str]:
        """Return the lines for a verdict to quote: without secrets, then cut and escaped."""
        texts = (self._redactor.hide(line.decode(errors="replace").rstrip()) for line in lines)
        return [printable(text[:_LONGEST]) for text in texts if text]

    def _note_tracebacks(self, path: str, tail: Tail) -> None:
        writers = self._writers.get(path, [])
        if len(writers) == 1:
            for raised in tail.raised:
                writers[0].add(dataclasses.replace(raised, handled=True))
        tail.raised.clear()
