"""Shows a job while its user waits for it: its phase, its ranks' output, its end."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter

from ddplaunch import api
from ddplaunch.agent.contract import Marks
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.cli import output
from ddplaunch.cli.output import drawn
from ddplaunch.errors import DdplaunchError
from ddplaunch.report import Diagnosis, live, progress, verdict, words


def until_end(handle: Handle) -> Diagnosis:
    """Show the job on stderr until it has ended, and return its diagnosis. Ctrl-C raises KeyboardInterrupt.

    Raises what `api.follow` raises.
    """
    frames = Frames(handle)
    attempt = 0
    view = live.view(sys.stderr)
    with drawn(view):
        for each in api.follow(handle):
            if isinstance(each, str):
                lines = frames.shown(each)
            elif isinstance(each, Job):
                lines = frames.released() if each.attempt > attempt else []
                attempt = max(attempt, each.attempt)
                view.show(each)
            else:
                lines = [] if each.verdicts else frames.released()
            for line in lines:
                view.line(line)
            if isinstance(each, Diagnosis):
                return each
    raise AssertionError(handle)


def detach(handle: Handle) -> None:
    """Print how to come back to a job that goes on."""
    sys.stderr.write(
        f"\ndetached; {handle} goes on\n"
        f"  ddplaunch logs -f {handle}    to follow it again\n"
        f"  ddplaunch cancel {handle}     to stop it\n"
    )


def conclude(found: Diagnosis) -> None:
    """Print on stderr how the job ended and why; or why it will never start, and what to do."""
    job = found.job
    paint, width = output.paint(sys.stderr), output.width(sys.stderr)
    line = progress.headline(job, time.time(), verdicts_below=True)
    good = job.state is State.SUCCEEDED
    sys.stderr.write(f"ddplaunch: {paint.good(line) if good else paint.bad(line)}\n")
    if job.never_starts:
        sys.stderr.write(f"ddplaunch: hint: {progress.hint(job)}\n")
    if job.state.ended:
        _name_outputs(job)
    if not job.never_starts and (found.verdicts or not good):
        sys.stderr.write(f"\n{verdict.diagnosis_text(found, paint, width)}\n")


def _name_outputs(job: Job) -> None:
    """Print on stderr how many files the ranks have left, and where."""
    with contextlib.suppress(DdplaunchError):  # how the job ended is printed already
        for each in api.outputs(job.handle, listed=False):
            newest = each.newest
            if not each.listed:
                sys.stderr.write(
                    f"ddplaunch: outputs: `ddplaunch outputs {job.handle}` lists them; they are in "
                    f"{printable(each.where)}\n"
                )
            if newest is not None and each.own:
                node = "" if each.node is None else f" of node {each.node}"
                many = f"{words.count(len(each.files), 'file')}, {words.size(each.size)}"
                where = f"newest {printable(newest.path)}, in {printable(str(each.folder))}"
                sys.stderr.write(f"ddplaunch: outputs{node}: {many}, {where}\n")


_SPEAKER = re.compile(r"\[(hub|\d+/ddplaunch)\] (.*)")
_CONTINUED = " " * 8


class Frames:
    """Passes a job's lines on, but a notice as one sentence, once, and no verdict: the end shows that.

    If the job goes on in its next attempt after a verdict, `released` returns that verdict.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._open: dict[str, list[str]] = {}  # the lines of a frame, by the speaker who is printing it
        self._printed: Counter[tuple[str, str]] = Counter()  # frames, by speaker and text
        self._shown: Counter[str] = Counter()  # frames, by text
        self._kept: list[str] = []

    def shown(self, line: str) -> list[str]:
        """Return the lines to show for one line of the job's output."""
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
        """Return the verdict that was kept back, even one that breaks off, and forget it; [] if there is
        none.
        """
        broken_off = max(self._open.values(), key=len, default=[])
        kept, self._kept = self._kept or broken_off, []
        self._open.clear()
        return kept

    def _of_frame(self, who: str, frame: list[str]) -> list[str]:
        text = "\n".join(frame)
        self._printed[who, text] += 1
        if self._printed[who, text] <= self._shown[text]:
            return []  # another speaker has already printed it
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
