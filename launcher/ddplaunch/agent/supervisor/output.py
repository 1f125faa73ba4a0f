"""Follows the output of the launch command and of each rank: one reader per file, one console for all.

Ranks write to files, not to pipes: a file never blocks a rank, loses no text when a process dies, and is read
no faster than our own output.

`supervisor` calls it in its loop. It must never wait for a reader of our output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import glob
import os
import re
import select
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from ddplaunch.agent.contract import Raised
from ddplaunch.agent.evidence.program_output import STARTS, Tracebacks
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.lines import StreamLines, final
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor

_CHUNK = 256 * 1024
_BACKLOG = 1 << 20
"""Bytes that may wait for a slow console. Beyond that, the text stays in the files."""
_NATIVE_LOG = re.compile(rb"\s*\[?[WEI]\d{4} |\s*\[W")
"""torch repeats its own warnings while it waits, so they are no progress."""
_NO_READER = (errno.EPIPE, errno.EBADF, errno.EIO)  # EIO: the terminal is gone


class Console:
    """Our standard output. It never blocks and never fails: a slow or absent reader must not stop the job.

    The ranks' output passes unchanged. Our own lines have no secrets (`redactor`) and no control characters.
    """

    def __init__(self, descriptor: int, redactor: Redactor = NO_SECRETS) -> None:
        self._redactor = redactor
        self._descriptor: Optional[int] = descriptor
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, prefix: bytes, lines: list[bytes]) -> None:
        if lines:
            self._waiting += b"".join([prefix + line + b"\n" for line in lines])
            self.flush()

    def log(self, label: str, text: str) -> None:
        """Print lines of our own or of the launch command."""
        shown = printable(self._redactor.hide(text), lines=True)
        self.write(f"[{label}] ".encode(), shown.encode().split(b"\n"))

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def is_full(self) -> bool:
        return len(self._waiting) > _BACKLOG

    def flush(self, patience: float = 0.0) -> None:
        """Write as much as the reader takes within `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._waiting and self._descriptor is not None:
            wait = max(0.0, deadline - time.monotonic())
            if not self._poll.poll(wait * 1000):
                return
            # A pipe that is ready takes PIPE_BUF bytes at once, and does not mix them with those of other
            # writers.
            piece = self._waiting[: select.PIPE_BUF]
            end = piece.rfind(b"\n") + 1 or len(piece)
            try:
                written = os.write(self._descriptor, piece[:end])
            except OSError as error:
                if error.errno in _NO_READER:
                    self._descriptor = None
                    break
                return  # it takes no data now, or its disk is full, and both may pass
            del self._waiting[:written]
        if self._descriptor is None:
            self._waiting.clear()


class Tail:
    """Follows one file from beginning to end."""

    def __init__(self, path: str, shown: bool = True) -> None:
        self.path = path
        self.shown = shown
        self.has_more = False  # it has not been read to its end
        self.last_line = ""
        self.raised: list[Raised] = []  # cleared by the reader
        self._file: Optional[int] = None
        self._offset = 0
        self._limit = sys.maxsize
        self._lines = StreamLines()
        self._tracebacks = Tracebacks()
        self.kept: list[bytes] = []  # the last lines
        self.fresh: list[bytes] = []  # the new lines among these; cleared by the reader

    def mark(self) -> None:
        """Read no further than to the present end until marked again: later lines may be another's."""
        with contextlib.suppress(OSError):
            self._limit = os.stat(self.path).st_size

    def read(self, write: Callable[[list[bytes]], None], keep: int = 1) -> bool:
        """Read one chunk at most. Returns whether there was anything new."""
        data = self._data()
        if not data:
            self._show_partial(write)
            return False
        is_new = self._take(self._lines.take(data, time.monotonic()), write, keep)
        self._show_partial(write)
        return self._remember(final(self._lines.partial)) or is_new

    def close(self, write: Callable[[list[bytes]], None], keep: int = 1) -> None:
        """Read to the end and close the file."""
        self._limit = sys.maxsize
        data = self._data()
        while data:
            self._take(self._lines.feed(data), write, keep)
            data = self._data()
        rest = self._lines.flush()
        self.shown = self.shown and rest != [self._lines.shown]
        self._take(rest, write, keep)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _data(self) -> bytes:
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            size = max(0, min(_CHUNK, self._limit - self._offset))
            data = os.read(self._file, size)
            self._offset += len(data)
            self.has_more = len(data) == _CHUNK
            return data
        return b""

    def _take(self, lines: list[bytes], write: Callable[[list[bytes]], None], keep: int) -> bool:
        if not lines:
            return False
        if self.shown:
            write(lines)
        self._find_tracebacks(lines)
        self.kept = (self.kept + lines[-keep:])[-keep:]
        self.fresh = (self.fresh + lines[-keep:])[-keep:]
        last = next((line for line in reversed(lines) if line.strip()), b"")
        return self._remember(last) and not all(map(_NATIVE_LOG.match, lines))

    def _remember(self, line: bytes) -> bool:
        text = line.decode(errors="replace").strip()[:500]
        if not text or text == self.last_line:
            return False
        self.last_line = text
        return True

    def _find_tracebacks(self, lines: list[bytes]) -> None:
        # One search finds all of them, because a rank may print a hundred megabytes a second.
        together = b"\n".join(lines)
        if not self._tracebacks.reading and not any(start in together for start in STARTS):
            return
        now = time.time()
        for line in lines:
            raised = self._tracebacks.feed(line.decode(errors="replace"), now)
            if raised is not None:
                self.raised.append(raised)

    def _show_partial(self, write: Callable[[list[bytes]], None]) -> None:
        state = self._lines.due(time.monotonic())
        if state and self.shown:
            write(state)


_LAUNCH_KEPT = 40
"""Last lines to keep of the launch command's own output."""
_CALM_AFTER = 2.0
"""Seconds without output after which a job counts as printing nothing."""
_READING = 0.05
"""Seconds to spend at once on reading what the carrier has already shown."""
_CARRIED = 1.0
"""Seconds for the carrier to read what has been printed until now."""
_RANK_KEPT, _LONGEST_QUOTE = 10, 200
"""Last lines of a rank's output, and characters of each line, that a verdict may quote."""


class RankLogs:
    """This node's output files. Lines of a file with several writers, as under mp.spawn, count for no rank.

    In the foreground another process shows the output and writes the files. Here they are only read for
    evidence.
    """

    def __init__(self, node: int, place: LaunchContext, console: Console, redactor: Redactor) -> None:
        self._redactor = redactor
        self._node = node
        self._place = place
        self._console = console
        self.launch = Tail(place.launch_log)
        self._tails: dict[str, Tail] = {}
        self._writers: dict[str, list[Rank]] = {}  # path -> the ranks that write to it
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
            # From the first worker on, torchrun's own lines only repeat ours. mpirun prints the ranks'
            # output. A rank without files may already be gone, and then its output is only in the launch
            # command's log.
            self.launch.shown = self._place.launch_log in files or of_mpi
        for path in files:
            self._follow(path, rank)
        label = self._label_of(self._place.launch_log)
        if self._place.streams is not None and label != self._label:
            self._label = label
            self.catch_up(label=label)

    def _files(self, rank: Rank) -> list[str]:
        """Return the files that hold what the rank prints."""
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
        """Stop counting output for the rank: it was replaced, or turned out not to be a rank."""
        for writers in self._writers.values():
            if rank in writers:
                writers.remove(rank)

    def are_calm(self) -> bool:
        """Return whether there has been nothing new for a while and everything is on the console."""
        return time.monotonic() - self._grew_at >= _CALM_AFTER and self._console.is_empty

    def read(self) -> None:
        """Copy new output to the console, unless the console is full."""
        if not self._console.is_full:
            for path, tail, keep in self._all():
                if self._read(path, tail, keep):
                    self._grew_at = time.monotonic()
                    self._note_lines(path, tail)
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
        """Read what has been printed until now, as far as the evidence needs it."""
        self.catch_up()
        self.read()

    def catch_up(self, **message: object) -> None:
        """Have the carrier bring the files up to date, and pass something on to it."""
        if self._place.streams is not None:
            self._place.streams.carry(_CARRIED, **message)

    def lose(self, reason: object) -> None:
        """Log once that a rank cannot write its output. A line in its file marks each gap."""
        if not self._lossy:
            self._lossy = True
            why = printable(str(reason)[:_LONGEST_QUOTE])
            text = f"cannot write {self._place.ranks}: {why}; output is lost until it can; the job goes on"
            self._console.log(f"{self._node}/ddplaunch", text)

    def finish(self, ranks: Sequence[Rank], numbers: Callable[[int], int]) -> None:
        """Read all the output that is left. `numbers`: the rank of a local rank that was never seen alive."""
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
            self._note_lines(path, tail)
            self._note_tracebacks(path, tail)

    def _follow(self, path: str, rank: Rank) -> None:
        if path != self._place.launch_log and path not in self._tails:
            self._tails[path] = Tail(path, self._place.streams is None)
        writers = self._writers.setdefault(path, [])
        if rank not in writers:
            writers.append(rank)

    def _all(self) -> Iterable[tuple[str, Tail, int]]:
        """Yield the path, the tail, and the number of last lines to keep."""
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

    def _note_lines(self, path: str, tail: Tail) -> None:
        writers = self._writers.get(path, [])
        for rank in writers if tail.last_line else ():
            # In a shared file the line may be another rank's: it counts for those that wrote just now.
            rank.note_lines(tail.fresh or [tail.last_line.encode()])
            if len(writers) == 1:
                rank.last_output = printable(self._redactor.hide(tail.last_line))
                rank.last_output_at = time.time()
                rank.last_lines = [*rank.last_lines, *self.quoted(tail.fresh)][-_RANK_KEPT:]
        tail.fresh.clear()

    def quoted(self, lines: Iterable[bytes]) -> list[str]:
        """Return the lines as a verdict may quote them: without secrets, then cut and escaped."""
        texts = (self._redactor.hide(line.decode(errors="replace").rstrip()) for line in lines)
        return [printable(text[:_LONGEST_QUOTE]) for text in texts if text]

    def _note_tracebacks(self, path: str, tail: Tail) -> None:
        writers = self._writers.get(path, [])
        if len(writers) == 1:
            for raised in tail.raised:
                writers[0].add_exception(dataclasses.replace(raised, handled=True))
        tail.raised.clear()
