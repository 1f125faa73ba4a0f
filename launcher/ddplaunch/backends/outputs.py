"""Lists what the ranks of a job wrote below their working directory, from what lies on a file system.

Called by the backends; reads folders only. In the job's own folder an output is what `agent.contract.written`
says; in a folder of the user's own, what was written since the job was submitted, by anybody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ddplaunch.agent.contract import SOURCE_MARK, Files, JobPlan, work_folder
from ddplaunch.backends import files

BROUGHT = "outputs"
"""Folder, in the job's own, of what nodes wrote that do not see it: `outputs/node-1`."""
_LEFT_OUT = ("__pycache__", ".git", SOURCE_MARK)
_MOST = 200_000
"""Entries of a folder that are looked at. The folder may be anybody's home."""
_CLOCKS = 2.0
"""Seconds by which the clock of a file server may be behind ours."""


@dataclass(frozen=True)
class OutputFile:
    """A file: its path below the folder, its size in bytes, its time in seconds since the epoch."""

    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class Outputs:
    """The files that ranks wrote below one folder. `node`: of this node alone; None: of all that see it.

    `complete` False: the folder holds more entries than are looked at. `own` False: others may write there.
    """

    folder: Path
    files: tuple[OutputFile, ...]
    node: int | None = None
    complete: bool = True
    own: bool = True
    where: str = ""  # the folder in words, where this machine does not see it
    listed: bool = True  # False: nobody has looked, and `files` says nothing
    copy: Path | None = None  # the folder of this machine to which its files were brought

    @property
    def name(self) -> str:
        """Return what tells it from the others of a job: `node-1`, `resume` of all attempts, or ""."""
        if self.node is not None:
            return f"node-{self.node}"
        return Files.RESUME if self.own and self.folder.name == Files.RESUME else ""

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(each.size for each in self.files)

    @property
    def newest(self) -> OutputFile | None:
        """Return the file that was written last."""
        return max(self.files, key=lambda each: each.modified, default=None)


def of_job(folder: Path, submitted: float, besides: Collection[Path] = ()) -> list[Outputs]:
    """Return what a job wrote whose own folder this is, `besides` the files of ddplaunch itself.

    Empty where its plan is not there, or it stood in a folder that no plan names.
    """
    plan = files.read_if_valid(JobPlan, folder / Files.PLAN)
    if plan is None:
        return []
    found = []
    if plan.workdir:
        found.append(_below(Path(plan.workdir), submitted - _CLOCKS, {folder, *besides}))
    elif (folder / Files.WORK).is_dir():
        found.append(_below(folder / Files.WORK))
    resume = _below(folder / Files.RESUME)
    if resume.files:
        found.append(resume)
    for brought in sorted((folder / BROUGHT).glob("node-*")):
        each = _below(brought)
        found.append(Outputs(each.folder, each.files, int(brought.name[5:]), each.complete))
    return found


def is_output(path: Path, status: os.stat_result, mark: float) -> bool:
    """Return whether what lies at `path`, below a job's own folder, is an output, not part of the job itself.

    `mark`: when the source was complete, as `work_folder.read_source_mark` returns it.
    """
    if path.parts[0] == Files.WORK:
        return path.name != SOURCE_MARK and work_folder.is_written(status, mark)
    return path.parts[0] in (BROUGHT, Files.RESUME)  # into which only ranks write


def _below(folder: Path, since: float | None = None, besides: Collection[Path] = ()) -> Outputs:
    """Return what ranks have written below a folder; with `since`, what was written there from then on."""
    found, entries = [], 0
    mark = work_folder.read_source_mark(str(folder))
    for path, status in _walk(folder, besides):
        entries += 1
        if entries > _MOST:
            break
        if work_folder.is_written(status, mark) and (
            since is None or max(status.st_mtime, status.st_ctime) >= since
        ):
            found.append(OutputFile(str(path.relative_to(folder)), status.st_size, status.st_mtime))
    files_found = tuple(sorted(found, key=lambda each: each.path))
    return Outputs(folder, files_found, None, complete=entries <= _MOST, own=since is None)


def _walk(folder: Path, besides: Collection[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what is no folder, also links to folders, which are not followed."""
    for above, folders, names in os.walk(folder):
        here = Path(above)
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and here / name not in besides)
        for name in (*names, *(name for name in folders if (here / name).is_symlink())):
            if name not in _LEFT_OUT and here / name not in besides:
                with contextlib.suppress(OSError):  # gone meanwhile
                    yield here / name, (here / name).lstat()
