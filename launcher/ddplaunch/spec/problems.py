"""What is wrong with a job file, and the words in which it is said. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from ddplaunch.errors import DdplaunchError, ExitCode

Path = tuple[str | int, ...]
"""Where in the document something stands: `("volumes", 0, "name")`."""


class Problem(Struct, frozen=True, kw_only=True):
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
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}: {path}found {self.found}, wanted {self.wanted}{code}{hint}"


class SpecError(DdplaunchError):
    """A job file that cannot be used; `problems` holds all that is wrong, in the order of its lines."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.path, p.found)))
        super().__init__(describe(self.problems))


def describe(problems: Sequence[Problem]) -> str:
    """All problems as text: how many in which file, a blank line, then each with its hint below it."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n".join([f"{count} in {problems[0].file}", "", *map(str, problems)])


def join(path: Path) -> str:
    """`("volumes", 0, "name")` as `volumes[0].name`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text
