"""Finds the mount on which a file lies, in the text of /proc/PID/mountinfo. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Mount(NamedTuple):
    """One line: `root` is the folder of the file system that is mounted at `point`. See proc(5)."""

    point: str = ""
    root: str = ""
    kind: str = ""
    source: str = ""


def nearest(text: str, path: str) -> Mount:
    """Return the mount of `path`; an empty one where `text` has none."""
    closest = Mount()
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        root, point = (each.replace("\\040", " ") for each in left.split(" ")[3:5])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(closest.point):  # a later mount covers an earlier one
            kind, source = right.split(" ")[:2]
            closest = Mount(point, root, kind, source)
    return closest
