"""Keeps local jobs in `jobs/<name>/<n>/`, one folder per submission: rendered files, output and evidence.

A folder gets its number only when it is complete, so a launcher that dies on the way leaves no half job.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Files
from ddplaunch.backends import files
from ddplaunch.backends import lines as log_lines
from ddplaunch.backends.folder import attempts, new_folder, old
from ddplaunch.backends.job import Selection
from ddplaunch.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import RenderedFile

HOST = "host.json"
"""The host process of the job; the launcher writes it before the job starts."""
HOST_LOG = "run/host.log"
"""The log of that process; the ranks' output is in Files.OUTPUT."""
SWEEP = "sweep.json"
"""The file with the job's own values in a sweep, as text by key. Other jobs have none."""
CANCELLED = "cancelled"
"""Exists once the job's user has asked for the job to end."""

_BEGUN = ".new-"
_ABANDONED_AFTER = 3600.0
"""Seconds after which a folder that has not become a job is removed. Writing one takes less."""


class Store:
    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"

    def begin(self, name: str, files: Mapping[str, RenderedFile]) -> Path:
        """Return a folder with all `files` that is not a job yet. Raises ClusterError if it cannot be
        written.
        """
        home = self.jobs / name
        with new_folder(home, _BEGUN) as folder:
            for leftover in old(home.glob(f"{_BEGUN}*"), _ABANDONED_AFTER):
                shutil.rmtree(leftover, ignore_errors=True)  # its launcher died in `begin`
            for path, file in files.items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.content)
                target.chmod(0o755 if file.executable else 0o644)
            (folder / Files.RUN).mkdir(exist_ok=True)
        return folder

    def claim(self, folder: Path) -> Path:
        """Give a folder from `begin` the next number of its name, which makes it a job. Returns its new path.

        Raises OSError if it cannot be renamed.
        """
        home = folder.parent
        number = max(_numbers(home), default=0)
        while True:
            number += 1
            try:
                # A folder with that number is never empty, so rename fails if another launcher was faster.
                return folder.rename(home / str(number))
            except OSError:
                if not (home / str(number)).exists():
                    raise

    def find(self, path: str) -> Path:
        """Return the folder of `name/n`, or of the newest job called `name`. Raises NotFoundError and
        UsageError.
        """
        name, _, number = path.partition("/")
        if name in ("", ".", "..") or (number and not number.isdecimal()) or path.endswith("/"):
            raise UsageError(
                f"local://{path} is not the handle of a local job",
                hint="local://digits/3 is the third submission of digits, local://digits the newest",
            )
        home = self.jobs / name
        numbers = _numbers(home)
        if not numbers or (number and int(number) not in numbers):
            raise NotFoundError(
                f"there is no job local://{path} on this machine", hint=self._hint(name, numbers)
            )
        return home / str(int(number) if number else numbers[-1])

    def folders(self) -> list[Path]:
        """Return the folder of every job."""
        try:
            homes = sorted(path for path in self.jobs.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []
        return [home / str(number) for home in homes for number in _numbers(home)]

    def _hint(self, name: str, numbers: list[int]) -> str:
        if numbers:
            return f"the last submission of {name} is local://{name}/{numbers[-1]}"
        from difflib import get_close_matches

        known = sorted(path.parent.name for path in self.folders())
        near = get_close_matches(name, known, n=1)
        return f"did you mean local://{near[0]}?" if near else "`ddplaunch list` shows all jobs"


def _numbers(home: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in home.iterdir() if path.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []


def lines(folder: Path, wanted: Selection, *, follow: bool, alive: Callable[[], bool]) -> Iterator[str]:
    """Yield the wanted lines that are there; with `follow`, then also those that come while `alive`."""
    return log_lines.lines(_AttemptLogs(folder), wanted, follow=follow, alive=alive)


class _AttemptLogs:
    """A `LogSource` of each attempt's output.log, from where the last read ended."""

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
                        continue  # it was renamed meanwhile: this may be the next attempt's file
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
