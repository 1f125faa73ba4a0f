"""Carries what the launch command and its ranks print to the user's own stdout and stderr.

The launch command writes into one pipe for each of the two, or into a pseudo terminal if the user's stream is
a terminal; into a single one if both streams are the same. A rank whose hook finds one of these as its own
stdout or stderr gets others for itself, so that its lines are known to be its own. A stream that the user's
command has redirected stays as it is. Everything is also kept below the job's folder, where it can be read
for a verdict.

The command never waits for us, only for the user's own reader: what comes is read at once, as long as that
reader keeps up. If the reader has gone, the writers get SIGPIPE, as they would without us.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import termios
import time
import tty
from typing import Any, Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Files
from ddplaunch.agent.local.display import Display, Outlet, Writer, display, set_size, size_of
from ddplaunch.agent.system import processes
from ddplaunch.agent.system.files import LogFile
from ddplaunch.agent.text.lines import PrefixedLines

KEPT = 1 << 30
"""Bytes of each writer's output to keep below the job's folder. The user's own streams get everything."""
_PIPE = 1 << 20
_TURN = 4 << 20
"""Bytes to read from one writer before the others, and signals, have their turn."""
_RESIZE = 0.25
"""Seconds between two looks at the size of the user's terminal."""
_LAST_WORDS, _PATIENCE = 5.0, 0.1
"""Seconds for a slow reader after the signal to stop, and for a full disk; within these, seconds for
one try."""
Identity = tuple[int, int]


class UserStreams(NamedTuple):
    """The descriptors with which the user started us.

    `prefix`: whether each line names its writer; None: that depends on where it goes. `group`: the terminal's
    foreground process group, for a command that gets the terminal as it is. `more`: further descriptors.
    `blocked`: signals that our caller has blocked.
    """

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    prefix: Optional[bool] = None
    group: Optional[int] = None
    more: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()


class _Source:
    """A pipe or pseudo terminal to which a process of the job writes."""

    def __init__(self, writer: Writer, shown: Display, log: _Kept, *, shared: bool) -> None:
        """`shared`: another source has the same log, so both write only whole lines to it."""
        self.writer = writer
        self.shown = shown
        self.log = log
        self.lines = PrefixedLines() if shared else None
        self.record = PrefixedLines()
        self.is_terminal = shown.outlet.is_terminal
        self.reading, self.writing = _terminal(shown.outlet) if self.is_terminal else _pipe()
        os.set_blocking(self.reading, False)
        self.is_paused = False

    @property
    def identity(self) -> Identity:
        status = os.fstat(self.writing)
        return status.st_dev, status.st_ino

    def hand_over(self) -> None:
        """Close our own writing end, once another process has it."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1


class _Kept:
    """A file below the job's folder, of bounded size."""

    def __init__(self, path: str, complain: Callable[[str], None]) -> None:
        self._file = LogFile(path, complain)
        self._left = KEPT

    def write(self, data: bytes) -> None:
        if self._left > 0:
            self._file.write(data)
            self._left -= len(data)
            if self._left <= 0:
                self._file.write(b"\n... ddplaunch keeps no more of this output\n")

    def close(self) -> None:
        self._file.close()


class Carrier:
    def __init__(self, streams: UserStreams, node: int, folder: str, complain: Callable[[str], None]) -> None:
        """`folder`: the job's. `complain` gets a sentence about a file that cannot be written."""
        self.streams = streams
        self.name = f"ddplaunch-output-{os.getpid()}-{os.urandom(8).hex()}"
        self._node = node
        self._folder = os.path.join(folder, Files.NODE.format(node=node))
        self._complain = complain
        out, err = os.fstat(streams.stdout), os.fstat(streams.stderr)
        term = os.environ.get("TERM", "")
        self._out = self._err = display(Outlet(streams.stdout), streams.prefix, term)
        if (out.st_dev, out.st_ino) != (err.st_dev, err.st_ino):
            self._err = display(Outlet(streams.stderr), streams.prefix, term)
        self._selector = selectors.EpollSelector()
        self._sources: list[_Source] = []
        self._launch: dict[Identity, _Source] = {}
        self._launch_writer = Writer(self._label("launch"))
        self._own_lines: list[tuple[bytes, bool]] = []
        self._awaited: set[int] = set()  # outlets that wait for their readers
        self._sizes: dict[int, tuple[int, int]] = {}
        self._sized_at = 0.0
        os.makedirs(self._folder, exist_ok=True)
        self._record = _Kept(os.path.join(folder, Files.OUTPUT), complain)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.name)
        self._listener.listen(4096)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def fileno(self) -> int:
        """Return an epoll descriptor that is readable when there is something to carry."""
        return self._selector.fileno()

    def launch_streams(self) -> tuple[int, int]:
        """Return the launch command's stdout and stderr. `handed_over` closes them."""
        log = _Kept(os.path.join(self._folder, Files.LAUNCH_LOG), self._complain)
        apart = self._err is not self._out
        out = err = self._source(self._launch_writer, self._out, log, shared=apart)
        if apart:
            err = self._source(self._launch_writer, self._err, log, shared=True)
        self._launch = {source.identity: source for source in (out, err)}
        return out.writing, err.writing

    def handed_over(self) -> None:
        for source in self._launch.values():
            source.hand_over()

    def say(self, lines: bytes, keep: bool = False) -> None:
        """Show our own lines on stderr, after what has been printed until now. `keep`: put them into the
        record, too.
        """
        if lines:
            self._own_lines.append((lines, keep))

    def carry(self) -> None:
        """Read what is there, show it, and answer processes that ask for streams of their own."""
        requests = []
        for key, _ in self._selector.select(0):
            if isinstance(key.data, Outlet):
                key.data.flush()
            elif callable(key.data):
                requests.append((key.data, key.fileobj))
        now = time.monotonic()
        # The launch command comes last: what it prints after a rank's end has to come after the rank's last
        # line. What it printed before a rank's first line was read when the rank asked for its streams.
        for source in self._sources[::-1]:
            self._drain(source, now)
            self._record.write(source.record.tick(now))
        for call, asking in requests:  # after what was printed before they asked
            call(asking)
        for lines, keep in self._own_lines:
            self._err.say(lines)
            self._record.write(lines if keep else b"")
        self._own_lines.clear()
        for shown in (self._out, self._err):
            shown.tick(now)
            shown.outlet.flush()
            self._await(shown.outlet)
        self._resize(now)

    def finish(self, is_over: Callable[[], bool]) -> None:
        """Show everything that is left, for as long as its reader takes; once `is_over()`, for only some
        seconds more.
        """
        for source in self._sources[::-1]:
            while not self._is_stuck(source.shown.outlet, is_over) and source in self._sources:
                if not self._drain(source, time.monotonic()):
                    break
            if source in self._sources:
                self._end(source)
        self.carry()
        for shown in (self._out, self._err):
            shown.close()
            if self._is_stuck(shown.outlet, is_over, 0):
                shown.outlet.give_up()
            shown.outlet.close()
        self._record.close()
        self._listener.close()

    def lost(self) -> str:
        """Return what the user's disk did not take; "" if it took everything."""
        for outlet, name in ((self._out.outlet, "stdout"), (self._err.outlet, "stderr")):
            if outlet.lost:
                return f"cannot write {name}: {outlet.error}; {outlet.lost} bytes of output are lost"
        return ""

    def _is_stuck(self, outlet: Outlet, is_over: Callable[[], bool], most: int = 1 << 19) -> bool:
        """Write until at most `most` bytes are waiting. Returns whether we gave up on the reader."""
        left = _LAST_WORDS
        while outlet.waiting > most:
            begun = time.monotonic()
            outlet.flush(_PATIENCE)
            if outlet.refuses:
                time.sleep(_PATIENCE)
            left -= (time.monotonic() - begun) if outlet.refuses or is_over() else 0.0
            if left <= 0:
                return True
        return False

    # --- what is printed

    def _source(self, writer: Writer, shown: Display, log: _Kept, *, shared: bool = False) -> _Source:
        source = _Source(writer, shown, log, shared=shared)
        self._sources.append(source)
        self._selector.register(source.reading, selectors.EVENT_READ, source)
        return source

    def _drain(self, source: _Source, now: float) -> bool:
        """Carry what the source has, at most _TURN bytes. Returns whether it had anything."""
        outlet, left = source.shown.outlet, _TURN
        while left > 0:
            if outlet.broken:
                self._end(source)
                return False
            if self._pause(source, outlet.full):
                break
            try:
                data = os.read(source.reading, _PIPE)
            except BlockingIOError:
                break
            except OSError:  # a pseudo terminal that no process has open any longer
                data = b""
            if not data:
                self._end(source)
                break
            left -= len(data)
            source.log.write(data if source.lines is None else source.lines.feed(data, now))
            source.record.prefix = source.writer.label
            self._record.write(source.record.feed(data, now))
            source.shown.feed(source.writer, data, now)
        return left < _TURN

    def _pause(self, source: _Source, is_full: bool) -> bool:
        """Stop reading a writer whose reader does not keep up: then the kernel makes it wait."""
        if is_full != source.is_paused:
            source.is_paused = is_full
            if is_full:
                self._selector.unregister(source.reading)
            else:
                self._selector.register(source.reading, selectors.EVENT_READ, source)
        return is_full

    def _end(self, source: _Source) -> None:
        self._sources.remove(source)
        if not source.is_paused:
            self._selector.unregister(source.reading)
        source.hand_over()
        os.close(source.reading)
        self._end_lines(source, is_over=True)
        if not any(each.writer is source.writer and each.shown is source.shown for each in self._sources):
            source.shown.end(source.writer)
        if not any(each.log is source.log for each in self._sources):
            source.log.close()

    def _end_lines(self, source: _Source, *, is_over: bool) -> None:
        """Keep an unfinished line, for anybody who reads the files now. `is_over`: no more of it will
        come.
        """
        if source.lines is not None:
            source.log.write(source.lines.end())
        if is_over:
            self._record.write(source.record.end())

    def _await(self, outlet: Outlet) -> None:
        """Wake up when a slow reader is ready again."""
        descriptor = outlet.fileno()
        if outlet.empty and descriptor in self._awaited:
            self._awaited.remove(descriptor)
            self._selector.unregister(descriptor)
        elif not outlet.empty and descriptor not in self._awaited:
            with contextlib.suppress(PermissionError):  # it is a file on a full disk
                self._selector.register(descriptor, selectors.EVENT_WRITE, outlet)
                self._awaited.add(descriptor)

    def _resize(self, now: float) -> None:
        """Give the pseudo terminals the size of the user's own."""
        if now - self._sized_at < _RESIZE:
            return
        self._sized_at = now
        for source in self._sources:
            if source.is_terminal:
                size = size_of(source.shown.outlet.fileno())
                if self._sizes.get(source.reading) != size:
                    self._sizes[source.reading] = size
                    with contextlib.suppress(OSError):
                        set_size(source.reading, *size)

    def _label(self, who: str) -> bytes:
        return f"[{self._node}/{who}] ".encode()

    # --- who asks

    def _accept(self, listener: socket.socket) -> None:
        for connection, pid in processes.accept_own(listener):

            def answer(asking: socket.socket, pid: int = pid) -> None:
                self._answer(asking, pid)

            self._selector.register(connection, selectors.EVENT_READ, answer)

    def _answer(self, connection: socket.socket, pid: int) -> None:
        """Answer one line of JSON: a rank asks for streams, or the supervisor asks to have everything
        read.
        """
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            request = json.loads(connection.recv(4096))
            if "label" in request:
                self._launch_writer.label = self._label(str(request["label"]))
            if "rank" in request:
                self._lend(connection, pid, request)
            else:
                for source in self._sources:
                    self._end_lines(source, is_over="over" in request)
                connection.send(b"{}\n")
        self._selector.unregister(connection)
        connection.close()

    def _lend(self, connection: socket.socket, pid: int, request: dict[str, Any]) -> None:
        """Give a rank streams of its own, in place of those that it has from the launch command."""
        rank, local, attempt = (int(request[name] or 0) for name in ("rank", "local", "attempt"))
        writer = Writer(self._label(str(rank)), int(request["ranks"] or 0) != 1)
        folder = os.path.join(self._folder, Files.RANKS, str(pid), f"attempt_{attempt}", str(local))
        made: dict[Identity, tuple[_Source, str]] = {}
        numbers, sources = [], []
        for number, name in ((1, "stdout.log"), (2, "stderr.log")):
            device, inode = request[str(number)]
            taken = self._launch.get((device, inode))
            if taken is None:
                continue
            if (device, inode) not in made:
                os.makedirs(folder, exist_ok=True)
                path = os.path.join(folder, name)
                source = self._source(writer, taken.shown, _Kept(path, self._complain))
                made[device, inode] = source, path
            numbers.append(number)
            sources.append(made[device, inode][0].writing)
        answer = json.dumps({"numbers": numbers, "files": [path for _, path in made.values()]}).encode()
        if sources:
            socket.send_fds(connection, [answer + b"\n"], sources)
        else:
            connection.send(answer + b"\n")
        for source, _ in made.values():
            source.hand_over()


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE)
    return reading, writing


def _terminal(outlet: Outlet) -> tuple[int, int]:
    """Return master and slave of a pseudo terminal with the outlet's size that changes no byte."""
    reading, writing = os.openpty()
    with contextlib.suppress(termios.error, OSError):
        settings = termios.tcgetattr(writing)
        settings[tty.OFLAG] &= ~termios.OPOST
        termios.tcsetattr(writing, termios.TCSANOW, settings)
        set_size(reading, *size_of(outlet.fileno()))
    return reading, writing
