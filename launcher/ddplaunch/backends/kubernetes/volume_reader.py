"""Lists or reads what ranks wrote in a job's folder on a volume. The launcher runs its text in a pod.

    python -c TEXT list|read FOLDER MOST SOURCE_TIME

Standard library only, Python 3.9, and little memory. It prints a line of JSON with the nodes that see the
folder, then a line for each file. `read` has the file's bytes behind its line, in pieces with their length
before each, then a line with their digest. The last line has `end`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator

LEFT_OUT = ("__pycache__", ".git", ".ddplaunch-source")


def line(value: object) -> None:
    """Print a line of JSON."""
    sys.stdout.buffer.write(json.dumps(value).encode() + b"\n")


def written(work: str, since: int) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield what is no folder and was not part of the source: path below `work`, full path, status."""
    try:
        mark = os.lstat(os.path.join(work, ".ddplaunch-source")).st_mtime
    except OSError:
        mark = float("-inf")  # then nothing shows what the source was, and to list too much loses nothing
    for above, folders, names in os.walk(work):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(names + links):
            path = os.path.join(above, name)
            try:
                status = os.lstat(path)
            except OSError:  # gone meanwhile
                continue
            plain = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if name not in LEFT_OUT and plain and (int(status.st_mtime) != since or status.st_ctime > mark):
                yield os.path.relpath(path, work), path, status


def content(path: str) -> None:
    """Print the bytes of a file, and their digest."""
    digest = hashlib.sha256()
    fault = ""
    try:
        with open(path, "rb") as file:
            while True:
                piece = file.read(1 << 18)
                if not piece:
                    break
                digest.update(piece)
                sys.stdout.buffer.write(b"%d\n" % len(piece) + piece)
    except OSError as error:
        fault = str(error.strerror)
    sys.stdout.buffer.write(b"0\n")
    line({"sha256": digest.hexdigest(), "fault": fault})


def main(verb: str, folder: str, most: int, since: int) -> None:
    """List or read the files."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    line({"nodes": sorted(int(name[5:]) for name in names if name[:5] == "node-" and name[5:].isdigit())})
    complete = True
    for count, (name, path, status) in enumerate(written(os.path.join(folder, "work"), since)):
        if count >= most:
            complete = False
            break
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        line([name, status.st_size, status.st_mtime, stat.S_IMODE(status.st_mode), link])
        if verb == "read" and link is None:
            content(path)
    line({"end": complete})
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
