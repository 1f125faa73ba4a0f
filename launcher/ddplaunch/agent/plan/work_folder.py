"""The folder in which a job's ranks run: its place on a volume, and what in it is the ranks' own work.

Asked by the supervisor at the end of the ranks, and by the launcher's `outputs` and `delete`; job.bash
asks `find` the same. The time of a file alone does not tell what ranks wrote from the source that the job
came with: `shutil.copy2`, with which trainings keep their configuration beside the checkpoints, gives the
copy the time of the file from the source. So the last step of unpacking the source is a mark. Everything
that the kernel has changed later is the ranks' work, whatever time it shows.

Where the folder is on a volume that only pods see, the launcher runs the text of this file in one of them, so
it imports nothing of ddplaunch, and needs little memory:

    python -c TEXT list|read FOLDER MOST

It prints a line of JSON with the nodes that see the job's folder, then a line for each file. `read` has the
file's bytes behind its line, in pieces with their length before each, then a line with their digest. The last
line has `end`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import Callable

SOURCE_TIME = 315_619_200
"""Seconds since the epoch (2 January 1980) at which all files of a job's source seem to be written, so that
the same source makes the same archive. Zip knows no earlier year."""
SOURCE_MARK = ".ddplaunch-source"
"""Name of a file in Files.WORK, written when the source is unpacked."""
WORK = "work"
"""Below the job's folder: where its source is unpacked, and the ranks of all nodes that see it run."""
NODE = "node-{node}"
"""Below the job's folder: an empty file of each node that sees this folder."""
_LEFT_OUT = ("__pycache__", ".git", SOURCE_MARK)
_SHORT = 8


def job_folder(root: str, job: str, submission: str) -> str:
    """Return the job's folder in `root`: no other submission has it, also of the same name. "": not known."""
    return f"{root.rstrip('/')}/{job}-{submission[:_SHORT]}" if root and submission else ""


def read_source_mark(folder: str) -> float:
    """Return when the source in a folder was complete, in seconds since the epoch; -inf without a mark.

    Without it nothing tells the source from the rest, and what is named too much loses nothing.
    """
    try:
        return os.lstat(os.path.join(folder, SOURCE_MARK)).st_mtime
    except OSError:
        return float("-inf")


def is_written(status: os.stat_result, mark: float) -> bool:
    """Return whether ranks wrote a file, or link, since `mark`, which `read_source_mark` has returned.

    Some file systems take the times of a file from the machine that writes it, and its clock may be slow: a
    file with a time of its own was written by a rank in any case.
    """
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        return False
    return int(status.st_mtime) != SOURCE_TIME or status.st_ctime > mark


def entries(
    folder: str, skipped: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of what is no folder below, also of links to folders, which are not followed.

    `skipped`: paths that are left out, folders with all that is in them.
    """
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _LEFT_OUT and not skipped(os.path.join(above, name))
        )
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        for name in sorted(names) + links:
            path = os.path.join(above, name)
            if name in _LEFT_OUT or skipped(path):
                continue
            try:
                yield path, os.lstat(path)
            except OSError:  # gone meanwhile
                continue


# --- in a pod


def _line(value: object) -> None:
    """Print a line of JSON."""
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")


def _content(path: str) -> None:
    """Print the bytes of a file, and their digest."""
    import hashlib  # only here, and who plans a job imports this module

    digest = hashlib.sha256()
    fault = ""
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 18):
                digest.update(piece)
                sys.stdout.buffer.write(b"%d\n" % len(piece) + piece)
    except OSError as error:
        fault = str(error.strerror)
    sys.stdout.buffer.write(b"0\n")
    _line({"sha256": digest.hexdigest(), "fault": fault})


def _main(verb: str, folder: str, most: int) -> None:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    _line({"nodes": sorted(int(name[5:]) for name in names if name[:5] == "node-" and name[5:].isdigit())})
    work = os.path.join(folder, WORK)
    mark = read_source_mark(work)
    count = 0
    for path, status in entries(work):
        if not is_written(status, mark):
            continue
        count += 1
        if count > most:
            break
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        name = os.path.relpath(path, work)
        _line([name, status.st_size, status.st_mtime, stat.S_IMODE(status.st_mode), link])
        if verb == "read" and link is None:
            _content(path)
    _line({"end": count <= most})
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
