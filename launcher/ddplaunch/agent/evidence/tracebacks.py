"""Finds Python tracebacks, and uncaught exceptions of C++, in a rank's log. Pure.

A log has exceptions that the hook cannot see: those caught and logged, those of interpreters without it, and
those that end threads of C++, as torch's watchdog of NCCL.
"""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Frame, Raised

MESSAGE_LIMIT = 2000
_FRAME_LIMIT = 100
_START = "Traceback (most recent call last):"
_TERMINATE = re.compile(r"terminate called after throwing an instance of '(.+)'$")
_WHAT = "  what():  "
_TORCHS = re.compile(r"^(\[PG ID .+?\] )?(Process group watchdog thread terminated with exception: )?")
STARTS = (_START.encode(), b"terminate called after throwing")
"""A line without any of these begins no exception."""
_FRAME = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_END = re.compile(r"(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$", re.DOTALL)


class Tracebacks:
    """The parser of one stream: `feed` takes its lines in order."""

    def __init__(self) -> None:
        self._prefix: Optional[str] = None  # of each line of the present traceback; None: outside one
        self._frames: list[Frame] = []
        self._at = 0.0
        self._thrown = ""  # the type of an exception of C++ whose message comes next

    @property
    def reading(self) -> bool:
        """Whether a traceback has begun and not ended."""
        return self._prefix is not None or bool(self._thrown)

    def feed(self, line: str, at: float) -> Optional[Raised]:
        """Return the exception that `line`, without its newline, completes; else None."""
        place = line.find(_START)
        if place >= 0:
            # torch writes "[rank3]: " before every line, loggers a prefix before the first.
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
        """Return the exception with which C++ ends the process; torch's own words about it are left out."""
        thrown, self._thrown = self._thrown, ""
        begin = _TERMINATE.search(line)
        if begin is not None:
            self._thrown = begin[1]
        if not thrown or not line.startswith(_WHAT):
            return None
        return Raised(thrown, _TORCHS.sub("", line[len(_WHAT) :])[:MESSAGE_LIMIT], at, [], source="log")
