"""Problems of a job file, and their text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import count
from ddplaunch.errors import DdplaunchError, ExitCode

MAX_SHOWN = 100
"""The most problems in one text."""

MAX_LENGTH = 1000

UNKNOWN_KEY = "an unknown key"
"""The finding on a key that the job file does not have."""

MISSING_KEY = "no such key"
"""The finding where a key is missing."""

A_JOB_FILE = "a job file"
"""What is wanted in place of a file that is not a job file."""

_SENTENCES = {
    UNKNOWN_KEY: "unknown key",
    MISSING_KEY: "the key is missing",
    "no such file": "no such file",
    "no permission to read it": "no permission to read it",
}
"""Findings that say all there is to say, with the text for them."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of a job file. It never holds a secret's value.

    `path` is written as in `volumes[0].name`, empty for the file as a whole; `line` and `column` count from 1
    and are 0 when the file could not be read. `option` is the option of the command line that gave the value,
    in place of a line. `code` names the page of `ddplaunch explain`, if any.
    """

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    found: str
    wanted: str
    hint: str = ""
    code: str = ""
    option: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.option or self.file
        path = f"{self.path}: " if self.path else ""
        code = f" [{self.code}]" if self.code else ""
        hint = f"\n  hint: {_shown(self.hint)}" if self.hint else ""
        text = _SENTENCES.get(self.found, f"found {self.found}")
        if self.found not in _SENTENCES or self.wanted not in ("a known key", A_JOB_FILE):
            text += f", wanted {self.wanted}"
        return _shown(f"{place}: {path}{text}{code}") + hint


class SpecError(DdplaunchError):
    """A job file that cannot be used; `problems` holds all that is wrong, in the order of its lines.

    `source`: the paths that the file names under `source`, as far as they can be read, so that a caller can
    also say which of them are missing.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem], source: Sequence[str] = ()) -> None:
        self.source = tuple(source)
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.path, p.found)))
        super().__init__(describe(self.problems))


def describe(problems: Sequence[Problem]) -> str:
    """Return all problems as text: how many in which file, a blank line, then each with its hint below it."""
    files = " and ".join(dict.fromkeys(each.file for each in problems))
    lines = [f"{count(len(problems), 'problem')} in {_shown(files)}", "", *map(str, problems[:MAX_SHOWN])]
    if len(problems) > MAX_SHOWN:
        lines.append(f"… and {len(problems) - MAX_SHOWN} more")
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Return the text on one line without control characters, cut to MAX_LENGTH."""
    shown = printable(text[:MAX_LENGTH])
    return shown if len(text) <= MAX_LENGTH else f"{shown}…"
