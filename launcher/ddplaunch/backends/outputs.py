"""Lists what a job's ranks wrote below their working directory, from what is on a file system.

Called by the backends; reads folders only. In the job's own folder an output is what
`agent.plan.work_folder` says; in a folder of the user's own, what was written since the job was
submitted, by anybody.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddplaunch.agent.contract import SOURCE_MARK, Files, JobPlan
from ddplaunch.agent.plan import work_folder
from ddplaunch.backends import files
from ddplaunch.backends.job import Remains
from ddplaunch.errors import ClusterError

BROUGHT = "outputs"
"""Folder, in the job's own, of what nodes wrote that do not see it: `outputs/node-1`."""
_MOST = 200_000
"""Entries of a folder to look at. The folder may be anybody's home."""
_CLOCKS = 2.0
"""Seconds by which a file server's clock may be behind ours."""


@dataclass(frozen=True)
class OutputFile:
    """A file: its path below the folder, its size in bytes, its time in seconds since the epoch."""

    path: str
    size: int
    modified: float


@dataclass(frozen=True)
class Outputs:
    """The files that ranks wrote below one folder. `node`: of this node only; None: of all that see it.

    `complete` False: the folder holds more entries than we look at. `own` False: others may write there.
    """

    folder: Path
    files: tuple[OutputFile, ...]
    node: int | None = None
    complete: bool = True
    own: bool = True
    where: str = ""  # the folder in words, if this machine does not see it
    listed: bool = True  # False: nobody has looked, and `files` says nothing
    copy: Path | None = None  # the folder on this machine to which its files were brought

    @property
    def name(self) -> str:
        """Return what tells it from the job's other folders: `node-1`, `resume` of all attempts, or ""."""
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
    """Return what the job wrote whose own folder this is. `besides`: the files of ddplaunch itself.

    Empty if it ran in a folder that no plan names. A plan that cannot be read hides nothing in the job's own.
    """
    plan = files.read_if_valid(JobPlan, folder / Files.PLAN)
    found = []
    if plan is not None and plan.workdir:
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
    """Return whether what is at `path`, below a job's own folder, is an output, not part of the job itself.

    `mark`: when the source was complete, as `work_folder.read_source_mark` returns it.
    """
    if path.parts[0] == Files.WORK:
        return path.name != SOURCE_MARK and work_folder.is_written(status, mark)
    return path.parts[0] in (BROUGHT, Files.RESUME)  # only ranks write there


def _below(folder: Path, since: float | None = None, besides: Collection[Path] = ()) -> Outputs:
    """Return what ranks have written below a folder; with `since`, only what was written from then on."""
    found, entries = [], 0
    mark = work_folder.read_source_mark(str(folder))
    for path, status in work_folder.entries(str(folder), lambda path: Path(path) in besides):
        entries += 1
        if entries > _MOST:
            break
        if work_folder.is_written(status, mark) and (
            since is None or max(status.st_mtime, status.st_ctime) >= since
        ):
            found.append(OutputFile(os.path.relpath(path, folder), status.st_size, status.st_mtime))
    files_found = tuple(sorted(found, key=lambda each: each.path))
    return Outputs(folder, files_found, None, complete=entries <= _MOST, own=since is None)


def counted(*paths: Path) -> Remains:
    """Return what `remove` would remove of these files and folders. Those that are not there are left out.

    Raises ClusterError for anything that is not this user's own, is a link, or has another file system
    mounted in it.
    """
    found = Remains()
    for path in paths:
        own = _own(path)
        if own is None:
            continue
        found += Remains((str(path),))
        if not stat.S_ISDIR(own.st_mode):
            found += Remains(files=1, size=own.st_size)
            continue
        mark = work_folder.read_source_mark(str(path / Files.WORK))
        for below, entry in _entries(path, own.st_dev):
            its = Remains(files=1, size=entry.st_size)
            if is_output(below, entry, mark):
                its += Remains(outputs=1, outputs_size=entry.st_size)
            found += its
    return found


def remove(*paths: Path) -> None:
    """Remove these files and folders if they are there. Raises ClusterError as `counted` does."""
    counted(*paths)
    for path in paths:
        own = _own(path)
        try:
            if own is not None and stat.S_ISDIR(own.st_mode):
                shutil.rmtree(path)  # it follows no link, not even one that takes a folder's place meanwhile
            elif own is not None:
                path.unlink()
        except FileNotFoundError:
            continue  # another command was faster
        except OSError as error:
            raise ClusterError(
                f"{path} cannot be removed: {error.filename or path}: {error.strerror}",
                hint="some files are removed already; run the command again when the cause is fixed",
            ) from error


def _own(path: Path) -> os.stat_result | None:
    """Return the status of a file or folder; None if there is none. Raises as `counted` does."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ClusterError(f"{path} cannot be looked at: {error.strerror}", hint=_BY_HAND) from error
    if stat.S_ISLNK(found.st_mode):
        raise ClusterError(f"{path} is a link that ddplaunch did not make", hint=_BY_HAND)
    if found.st_uid != os.geteuid():
        raise ClusterError(
            f"{path} is another user's (uid {found.st_uid})", hint="only its owner can delete it"
        )
    return found


_BY_HAND: Final = "it was left alone; remove it by hand if you do not need it"


def _entries(folder: Path, device: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything below `folder` that is no folder, by its path there. Raises as `counted` does."""

    def refuse(error: OSError) -> None:
        raise ClusterError(
            f"{error.filename} cannot be read: {error.strerror}",
            hint="a job's folder is deleted as a whole or not at all",
        ) from error

    for at, folders, names in os.walk(folder, onerror=refuse):
        for name in (*folders, *names):
            path = Path(at, name)
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if found.st_dev != device:
                    raise ClusterError(
                        f"another file system is mounted at {path}, in the folder of the job",
                        hint="it may contain other people's data: unmount it first",
                    )
                if not stat.S_ISDIR(found.st_mode):
                    yield path.relative_to(folder), found
