"""Reads what ranks and launchers print: tracebacks, and exits that nobody else has seen. Pure.

The supervisor asks it for exits if torchrun, mp.spawn or mpirun was the one that reaped a rank.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from typing import Optional

from ddplaunch.agent.contract import Frame, Raised

MESSAGE_LIMIT = 2000
_FRAME_LIMIT = 100
_START = "Traceback (most recent call last):"
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(.+)'$")
_WHAT = "  what():  "
_TORCHS = re.compile(r"^(\[PG ID .+?\] )?(Process group watchdog thread terminated with exception: )?")
STARTS = (_START.encode(), b"terminate called after throwing")
"""A line without any of these does not begin an exception."""
_FRAME = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_END = re.compile(r"(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$", re.DOTALL)


_CANNOT_LISTEN = re.compile(r"failed to (listen|bind)\b.*(EADDRINUSE|[Aa]ddress already in use)")
"""What torchrun's store says of a port that another process has."""
_ITS_PORT = re.compile(r"port: (\d+)|(?:\]|\d):(\d+) \(errno")
"""In that: torch 2.7 and newer write 'port: 29500', torch 2.4 '[::]:29500 (errno: 98 - …', or nothing."""


def port_in_use(lines: Iterable[str]) -> Optional[int]:
    """Return the port at which the launch command could not listen, because another process does.

    0: it does not say which; None: it could.
    """
    for line in lines:
        if _CANNOT_LISTEN.search(line):
            found = _ITS_PORT.search(line)
            return int(found[1] or found[2]) if found is not None else 0
    return None


class Tracebacks:
    """The parser of one stream: `feed` takes its lines in order."""

    def __init__(self) -> None:
        self._prefix: Optional[str] = None  # of each line of the present traceback; None: we are outside one
        self._frames: list[Frame] = []
        self._at = 0.0
        self._thrown = ""  # the type of a C++ exception whose message comes next

    @property
    def reading(self) -> bool:
        """Whether a traceback has begun and has not ended yet."""
        return self._prefix is not None or bool(self._thrown)

    def feed(self, line: str, at: float) -> Optional[Raised]:
        """Return the exception that `line`, without its newline, completes; otherwise None."""
        place = line.find(_START)
        if place >= 0:
            # torch writes "[rank3]: " before every line; loggers put a prefix before the first one.
            self._prefix, self._frames, self._at = line[:place], [], at
            return None
        if self._prefix is None:
            return self._of_native_code(line, at)
        text = line[len(self._prefix) :] if line.startswith(self._prefix) else line
        frame = _FRAME.match(text)
        if frame:
            self._frames.append(Frame(frame["name"] or "<module>", frame["file"], int(frame["line"])))
            return None
        if not text.strip() or text[0] in " \t|+":  # source text, markers, or a group's frame
            return None
        self._prefix = None
        end = _END.match(text)
        if end is None or not self._frames:
            return None
        frames = self._frames[::-1][:_FRAME_LIMIT]
        return Raised(end["type"], (end["message"] or "")[:MESSAGE_LIMIT], self._at, frames, source="log")

    def _of_native_code(self, line: str, at: float) -> Optional[Raised]:
        """Return the exception with which C++ ends the process. torch's own words about it are left out."""
        thrown, self._thrown = self._thrown, ""
        begin = _TERMINATE.search(line)
        if begin is not None:
            self._thrown = begin[1]
        if not thrown or not line.startswith(_WHAT):
            return None
        return Raised(thrown, _TORCHS.sub("", line[len(_WHAT) :])[:MESSAGE_LIMIT], at, [], source="log")


_FAILURE = re.compile(
    r"^\s*rank\s*: (\d+) \(local_rank: (\d+)\)\s*$\s*^\s*exitcode\s*: (-?\d+) \(pid: (\d+)\)", re.MULTILINE
)


def torchrun_exits(text: str) -> dict[int, tuple[int, int, int]]:
    """Return (local rank, pid, exit code or negative signal) by global rank, from torchrun's failure report.

    torchrun's root cause is not read: it is merely the first one in dictionary order within a second.
    """
    failures = _FAILURE.findall(text)
    return {int(rank): (int(local), int(pid), int(code)) for rank, local, code, pid in failures}


_EXIT = re.compile(r"ProcessExitedException: process (\d+) terminated with (?:signal (\w+)|exit code (\d+))")


def mp_spawn_exits(text: str) -> dict[int, int]:
    """Return exit codes by the child's index, negative for a signal. mp.spawn reports the first bad end."""
    codes = {}
    for index, name, code in _EXIT.findall(text):
        number = -getattr(signal, name, 0) if name else int(code)
        if number:
            codes[int(index)] = number
    return codes


_CODE = re.compile(r"Process name: \[.*,(\d+)\]\s*\n\s*Exit code:\s+(\d+)")
_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")


def mpirun_exits(text: str) -> dict[int, int]:
    """Return exit codes by world rank, negative for a signal. Open MPI reports the first rank to end
    badly.
    """
    codes = {int(rank): int(code) for rank, code in _CODE.findall(text)}
    codes.update({int(rank): -int(number) for rank, number in _SIGNAL.findall(text)})
    return codes
