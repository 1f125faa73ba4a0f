"""A local job's output: the file its host writes, one attempt after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ddplaunch.agent.contract import Files
from ddplaunch.backends import files
from ddplaunch.backends import lines as shown
from ddplaunch.backends.folder import attempts
from ddplaunch.backends.job import Selection


def lines(folder: Path, wanted: Selection, *, follow: bool, alive: Callable[[], bool]) -> Iterator[str]:
    """The wanted lines that are there, then, with `follow`, those that come while `alive`."""
    return shown.lines(_Attempts(folder), wanted, follow=follow, alive=alive)


class _Attempts:
    """output.log of one attempt after the other, from where the last look ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self.file = shown.File(folder)

    def present(self) -> Iterator[bytes]:
        while True:
            runs = attempts(self.folder)
            try:
                with files.opened(runs[self.attempt] / Path(Files.OUTPUT).name) as file:
                    if len(attempts(self.folder)) != len(runs):
                        continue  # moved aside between the two looks: this may be the next attempt's file
                    yield from self.file.read(file)
            except (FileNotFoundError, files.NotPlainError):
                pass
            if self.attempt == len(runs) - 1:
                return
            yield from self.file.rest()
            self.attempt += 1
            self.file = shown.File(self.folder)

    def rest(self) -> Iterator[bytes]:
        return self.file.rest()
