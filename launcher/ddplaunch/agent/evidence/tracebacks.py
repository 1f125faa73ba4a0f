"""Finds Python tracebacks in a rank's log. Pure.

A log carries what no hook saw: what was caught and logged, and what an interpreter without the hook died of.
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
    """Fed with the lines of one stream, in order."""

    def __init__(self) -> None:
        self._prefix: Optional[str] = None  # before each line of the traceback being read; None: none is
        self._frames: list[Frame] = []
        self._at = 0.0

    @property
    def reading(self) -> bool:
        """Whether a traceback has begun and not ended."""
        return self._prefix is not None

    def feed(self, line: str, at: float) -> Optional[Raised]:
        """The exception that `line`, without its newline, completes. Of its message, the first line."""
        place = line.find(_START)
        if place >= 0:
            # torch writes "[rank3]: " before every line, and loggers what they like before the first.
            self._prefix, self._frames, self._at = line[:place], [], at
            return None
        if self._prefix is None:
            return None
        text = line[len(self._prefix) :] if line.startswith(self._prefix) else line
        found = _FRAME.match(text)
        if found:
            self._frames.append(Frame(found["name"] or "<module>", found["file"], int(found["line"])))
            return None
        if not text.strip() or text[0] in " \t|+":  # source text, markers, or a group's frame
            return None
        self._prefix = None
        end = _END.match(text)
        if end is None or not self._frames:
            return None
        frames = self._frames[::-1][:_FRAME_LIMIT]
        return Raised(end["type"], (end["message"] or "")[:MESSAGE_LIMIT], self._at, frames, source="log")
