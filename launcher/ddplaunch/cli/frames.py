"""Takes the verdicts out of a job's output, where the hub and every node print them in a frame."""

from __future__ import annotations

import re
from collections import Counter

from ddplaunch.agent.contract import Marks
from ddplaunch.backends.job import Handle

_SPEAKER = re.compile(r"\[(hub|\d+/ddplaunch)\] (.*)")
_CONTINUED = " " * 8


class Frames:
    """Passes a job's lines on: of a notice one sentence, once; of a verdict nothing, since the end shows it.

    A verdict after which the job goes on, in its next attempt, is had from `released`.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._open: dict[str, list[str]] = {}  # the lines of a frame by the speaker who is printing it
        self._printed: Counter[tuple[str, str]] = Counter()  # frames, by speaker and text
        self._shown: Counter[str] = Counter()  # frames, by text
        self._kept: list[str] = []

    def shown(self, line: str) -> list[str]:
        """Return the lines to show for one of the job's output."""
        match = _SPEAKER.fullmatch(line)
        if match is None:
            return [line]
        who, text = match.groups()
        frame = self._open.get(who)
        if not text.startswith(Marks.FRAME):
            if frame is None:
                return [line]
            frame.append(text)
            return []
        if frame is None:
            self._open[who] = [text]
            return []
        del self._open[who]
        frame.append(text)
        return self._of_frame(who, frame)

    def released(self) -> list[str]:
        """Return the verdict that was kept back, also one that breaks off, and forget it; [] for none."""
        broken_off = max(self._open.values(), key=len, default=[])
        kept, self._kept = self._kept or broken_off, []
        self._open.clear()
        return kept

    def _of_frame(self, who: str, frame: list[str]) -> list[str]:
        text = "\n".join(frame)
        self._printed[who, text] += 1
        if self._printed[who, text] <= self._shown[text]:
            return []  # another speaker has printed it
        self._shown[text] += 1
        head = frame[0].strip("- ").removeprefix("ddplaunch ")
        kind, _, what = head.partition(": ")
        if kind != "notice":
            self._kept = frame
            return []
        return [
            f"ddplaunch: {what}: {_sentence(frame[1:])}; `ddplaunch diagnose {self._handle}` has the facts"
        ]


def _sentence(lines: list[str]) -> str:
    """Return the first sentence of a frame, on one line."""
    sentence = lines[:1]
    for line in lines[1:]:
        if not line.startswith(_CONTINUED):
            break
        sentence.append(line.strip())
    return " ".join(sentence)
