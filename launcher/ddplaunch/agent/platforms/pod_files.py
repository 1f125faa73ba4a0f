"""Names the files that ranks wrote inside a pod, and that go with it.

The supervisor calls it once, when all of its ranks have ended. It looks at names, sizes and times, and opens
no file but /proc/self/mountinfo.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ddplaunch.agent.contract import SOURCE_MARK, work_folder
from ddplaunch.agent.system import mounts, phrases

_MOST = 50_000
"""Entries that are looked at: the end of a job does not wait for more."""
_EMPTY_DIR = "kubernetes.io~empty-dir"
"""In the path of such a volume on its node: pkg/volume/emptydir of Kubernetes."""


def gone(folder: str, since: float, table: str = "/proc/self/mountinfo") -> str:
    """Return what was written below `folder` since then and goes with the pod, as a sentence; "": nothing.

    Files on volumes that stay, and those of the job's source, are none of it.
    """
    if folder == "/" or not _goes(folder, table):
        return ""
    mark = work_folder.read_source_mark(folder)
    count, size, newest, newest_at = 0, 0, "", 0.0
    for entries, (path, status) in enumerate(_files(folder)):
        if entries >= _MOST:
            break
        if max(status.st_mtime, status.st_ctime) < since or not work_folder.is_written(status, mark):
            continue
        count += 1
        size += status.st_size
        if status.st_mtime > newest_at:
            newest, newest_at = os.path.relpath(path, folder), status.st_mtime
    if not count:
        return ""
    many = "1 file" if count == 1 else f"{count} files"
    return (
        f"{many}, {phrases.size(size)}, newest {newest}, written in {folder}, will be gone with this pod: "
        "to keep what ranks write, name a volume under `outputs`"
    )


def _goes(folder: str, table: str) -> bool:
    """Whether the folder lies in the container's own file system, or in an emptyDir."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            mount = mounts.nearest(file.read(), folder)
    except OSError:
        return False
    return mount.point == "/" or _EMPTY_DIR in mount.root


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is no folder below, on the folder's own file system."""
    try:
        device = os.lstat(folder).st_dev
    except OSError:
        return
    for above, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in ("__pycache__", ".git") and _device(os.path.join(above, name)) == device
        ]
        for name in names:
            if name == SOURCE_MARK:
                continue
            path = os.path.join(above, name)
            with contextlib.suppress(OSError):  # gone meanwhile
                yield path, os.lstat(path)


def _device(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return -1
