"""Reads a local job's output: the file that its host writes for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ddplaunch.agent.contract import Files
from ddplaunch.backends import files
from ddplaunch.backends import lines as log_lines
from ddplaunch.backends.folder import attempts
from ddplaunch.backends.job import Selection


def lines(folder: Path, wanted: Selection, *, follow: bool, alive: Callable[[], bool]) -> Iterator[str]:
    """Yield the wanted lines that are there, then, with `follow`, those that come while `alive`."""
    return log_lines.lines(_AttemptLogs(folder), wanted, follow=follow, alive=alive)


class _AttemptLogs:
    """A `LogSource` of the output.log of each attempt, from where the last read ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self.file = log_lines.GrowingFile(folder)

    def present(self) -> Iterator[bytes]:
        while True:
            runs = attempts(self.folder)
            try:
                with files.opened(runs[self.attempt] / Path(Files.OUTPUT).name) as file:
                    if len(attempts(self.folder)) != len(runs):
                        continue  # renamed meanwhile: this may be the next attempt's file
                    yield from self.file.read(file)
            except (FileNotFoundError, files.NotPlainError):
                pass
            if self.attempt == len(runs) - 1:
                return
            yield from self.file.rest()
            self.attempt += 1
            self.file = log_lines.GrowingFile(self.folder)

    def rest(self) -> Iterator[bytes]:
        return self.file.rest()
