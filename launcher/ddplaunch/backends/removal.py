"""Removes what a job has left in a file system: counted first, through no link, only what is this user's."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ddplaunch.agent.contract import Files, work_folder
from ddplaunch.backends import outputs
from ddplaunch.backends.job import Remains
from ddplaunch.errors import ClusterError


def counted(*paths: Path) -> Remains:
    """Return what `remove` would take of these files and folders; those that are not there are left out.

    Raises ClusterError for what is not this user's own, is a link, or has another file system mounted in it.
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
        for below, entry in _below(path, own.st_dev):
            its = Remains(files=1, size=entry.st_size)
            if outputs.is_output(below, entry, mark):
                its += Remains(outputs=1, outputs_size=entry.st_size)
            found += its
    return found


def remove(*paths: Path) -> None:
    """Remove these files and folders, as far as they are there. Raises ClusterError as `counted` does."""
    counted(*paths)
    for path in paths:
        own = _own(path)
        try:
            if own is not None and stat.S_ISDIR(own.st_mode):
                shutil.rmtree(path)  # it follows no link, also not one that takes a folder's place meanwhile
            elif own is not None:
                path.unlink()
        except FileNotFoundError:
            continue  # another command was faster
        except OSError as error:
            raise ClusterError(
                f"{path} cannot be removed: {error.filename or path}: {error.strerror}",
                hint="what was removed by then is gone; call it again when the reason is",
            ) from error


def _own(path: Path) -> os.stat_result | None:
    """Return the status of a file or folder; None where there is none. Raises as `counted`."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ClusterError(f"{path} cannot be looked at: {error.strerror}", hint=_BY_HAND) from error
    if stat.S_ISLNK(found.st_mode):
        raise ClusterError(f"{path} is a link, which ddplaunch has not made", hint=_BY_HAND)
    if found.st_uid != os.geteuid():
        raise ClusterError(f"{path} is another user's (uid {found.st_uid})", hint="only its owner deletes it")
    return found


_BY_HAND: Final = "it stays as it is; if it is to go, remove it by hand"


def _below(folder: Path, device: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all that is no folder below `folder`, by its path there. Raises as `counted`."""

    def refuse(error: OSError) -> None:
        raise ClusterError(
            f"{error.filename} cannot be read: {error.strerror}",
            hint="a job's folder is deleted whole or not",
        ) from error

    for at, folders, names in os.walk(folder, onerror=refuse):
        for name in (*folders, *names):
            path = Path(at, name)
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if found.st_dev != device:
                    raise ClusterError(
                        f"another file system is mounted at {path}, in the folder of the job",
                        hint="what is in it may be data of others: unmount it first",
                    )
                if not stat.S_ISDIR(found.st_mode):
                    yield path.relative_to(folder), found
