"""Finds Python tracebacks in a rank's log. Pure.

A log has exceptions that the hook cannot see: those caught and logged, and those of interpreters without it.
"""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Frame, Raised

MESSAGE_LIMIT = 2000
_FRAME_LIMIT = 100
_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_END = re.compile(r"(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$", re.DOTALL)


class Tracebacks:
    """The parser of one stream: `feed` takes its lines in order."""

    def __init__(self) -> None:
        self._prefix: Optional[str] = None  # of each line of the present traceback; None: outside one
        self._frames: list[Frame] = []
        self._at = 0.0

    @property
    def reading(self) -> bool:
        """Whether a traceback has begun and not ended."""
        return self._prefix is not None

    def feed(self, line: str, at: float) -> Optional[Raised]:
        """Return the exception that `line`, without its newline, completes; else None."""
        place = line.find(_START)
        if place >= 0:
            # torch writes "[rank3]: " before every line, loggers a prefix before the first.
            self._prefix, self._frames, self._at = line[:place], [], at
            return None
        if self._prefix is None:
            return None
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
