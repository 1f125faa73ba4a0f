"""Problems of a job file, and their words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddplaunch.agent.text.printable import printable
from ddplaunch.errors import DdplaunchError, ExitCode

Path = tuple[str | int, ...]
"""Where in the document something stands: `("volumes", 0, "name")`."""


_SECRET_WORDS = ("env", "file", "secret", "name", "key")
"""The keys of `models.SecretRef`, which may be repeated."""


MAX_SHOWN = 100
"""Problems in one text; whoever has more will mend them in more than one go."""

MAX_LENGTH = 1000


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing to mend in a job file. Never holds a secret's value.

    `path` is written as in `volumes[0].name`, empty for the file as a whole; `line` and `column` count from 1
    and are 0 when the file could not be read so far. `code` names the page of `ddplaunch explain`, if any.
    """

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    found: str
    wanted: str
    hint: str = ""
    code: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        path = f"{self.path}: " if self.path else ""
        code = f" [{self.code}]" if self.code else ""
        hint = f"\n  hint: {_shown(self.hint)}" if self.hint else ""
        return _shown(f"{place}: {path}found {self.found}, wanted {self.wanted}{code}") + hint


class SpecError(DdplaunchError):
    """A job file that cannot be used; `problems` holds all that is wrong, in the order of its lines."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.path, p.found)))
        super().__init__(describe(self.problems))

    def of(self, file: str) -> "SpecError":
        """The same of that file: what a target cannot do is found when only the job's name is known."""
        return SpecError([replace(problem, file=file) for problem in self.problems])


def describe(problems: Sequence[Problem]) -> str:
    """Return all problems as text: how many in which file, a blank line, then each with its hint below it."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"{count} in {_shown(problems[0].file)}", "", *map(str, problems[:MAX_SHOWN])]
    if len(problems) > MAX_SHOWN:
        lines.append(f"… and {len(problems) - MAX_SHOWN} more")
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Nothing of a job file may command the terminal, or begin a line of its own."""
    shown = printable(text[:MAX_LENGTH])
    return shown if len(text) <= MAX_LENGTH else f"{shown}…"


def join(path: Path) -> str:
    """`("volumes", 0, "name")` as `volumes[0].name`.

    What follows a `=` in a key is left out, and so is what is no name or no known key below `secrets`: a
    value that was written in a wrong place may be a secret all the same.
    """
    text = ""
    for depth, step in enumerate(path):
        if path[0] == "secrets" and depth and not _known_in_secrets(step, depth):
            break
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step.partition("=")[0]
            text += f".{name}" if text else name
    return text


def _known_in_secrets(step: str | int, depth: int) -> bool:
    name = str(step).partition("=")[0]
    return name in _SECRET_WORDS if depth > 1 else name.isidentifier()
