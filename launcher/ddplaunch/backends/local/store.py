"""Keeps local jobs in `jobs/<name>/<n>/`, one folder per submission: rendered files and what happened.

A folder appears under its number whole, or not at all, so a launcher that dies on the way leaves no half job.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Files
from ddplaunch.errors import ClusterError, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import RenderedFile

HOST = "host.json"
"""The process that carries the job; written by the launcher before the job starts."""
HOST_LOG = "run/host.log"
"""What that process itself had to say; the ranks' output is in Files.OUTPUT."""
CANCELLED = "cancelled"
"""Exists once somebody asked for the job's end."""

_BEGUN = ".new-"
_ABANDONED_AFTER = 3600.0


class Store:
    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"

    def begin(self, name: str, files: Mapping[str, RenderedFile]) -> Path:
        """A folder with all `files`, not yet a job. Raises ClusterError when it cannot be written."""
        folder = home = self.jobs / name
        try:
            home.mkdir(parents=True, exist_ok=True)
            _sweep(home)
            folder = Path(tempfile.mkdtemp(prefix=_BEGUN, dir=home))
            for path, file in files.items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.content)
                target.chmod(0o755 if file.executable else 0o644)
            (folder / Files.RUN).mkdir(exist_ok=True)
        except OSError as error:
            if folder != home:
                shutil.rmtree(folder, ignore_errors=True)  # the room that it takes is missing elsewhere
            raise ClusterError(
                f"the job's folder cannot be written: {error.filename or home}: {error.strerror}",
                hint="jobs on this machine live below $XDG_STATE_HOME, or ~/.local/state: make room there, "
                "or set XDG_STATE_HOME to a folder that you may write to",
            ) from error
        return folder

    def claim(self, folder: Path) -> Path:
        """Give what `begin` made the next number of its name, which makes it a job."""
        home = folder.parent
        number = max(_numbers(home), default=0)
        while True:
            number += 1
            try:
                # A folder of that number is never empty, so rename fails where another launcher was faster.
                return folder.rename(home / str(number))
            except OSError:
                if not (home / str(number)).exists():
                    raise

    def find(self, path: str) -> Path:
        """The folder of `name/n`, or of the newest of `name`. Raises NotFoundError, UsageError."""
        name, _, number = path.partition("/")
        if name in ("", ".", "..") or (number and not number.isdecimal()) or path.endswith("/"):
            raise UsageError(
                f"local://{path} is not a handle of a local job",
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
        """Every job's folder."""
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


def _sweep(home: Path) -> None:
    """Remove what launchers that died in `begin` have left. A living one takes no hour."""
    for path in home.glob(f"{_BEGUN}*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue
