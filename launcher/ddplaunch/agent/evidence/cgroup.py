"""Reads limits and counters of control groups, version 1 and 2.

A container sees its own group as the root of the mount, a batch step sees a path below it: the mount table
says which. The tightest limit on the way up is the one that kills.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Optional

_UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned number."""


class Memory(NamedTuple):
    limit: Optional[int]  # bytes; None: no limit
    used: Optional[int]  # bytes, of the group with that limit
    oom_kills: int  # so far, in the group and what lies below it


class Cpu(NamedTuple):
    periods: int  # in which the group could run, so far
    throttled: int  # of those, in which its quota ended early


def memory(root: str = "/") -> Memory:
    """`root` stands in for "/" in tests."""
    tightest: tuple[int, Optional[int]] = (_UNLIMITED, None)
    kills = 0
    for folder in _folders("memory", root):
        limit = _number(folder, "memory.max") or _number(folder, "memory.limit_in_bytes")
        used = _number(folder, "memory.current") or _number(folder, "memory.usage_in_bytes")
        if limit is not None and limit < tightest[0]:
            tightest = (limit, used)
        # Counters of version 2 include what lies below, those of version 1 do not: the largest serves both.
        for name in ("memory.events", "memory.oom_control"):
            kills = max(kills, _entries(folder, name).get("oom_kill", 0))
    if tightest[0] >= _UNLIMITED:
        return Memory(None, None, kills)
    return Memory(tightest[0], tightest[1], kills)


def cpu(root: str = "/") -> Optional[Cpu]:
    """None: no group here has a quota."""
    for folder in _folders("cpu", root):
        entries = _entries(folder, "cpu.stat")
        if entries.get("nr_periods"):
            return Cpu(entries["nr_periods"], entries.get("nr_throttled", 0))
    return None


def _folders(controller: str, root: str) -> Iterator[str]:
    """Our group's folders under `controller`, innermost first, in either version's hierarchy."""
    paths = {}
    for line in _text(root, "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    for line in _text(root, "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mounted_root, point = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        key = "" if kind == "cgroup2" else controller
        if kind not in ("cgroup", "cgroup2") or key not in paths:
            continue
        if kind == "cgroup" and controller not in options.split(","):
            continue
        inside = os.path.relpath(paths[key], mounted_root)
        top = os.path.join(root, point.lstrip("/"))
        # A path outside of what is mounted: the group that we can see is the mount itself.
        folder = top if inside.startswith("..") else os.path.normpath(os.path.join(top, inside))
        while True:
            yield folder
            if folder == top or len(folder) <= len(top):
                break
            folder = os.path.dirname(folder)


def _number(folder: str, name: str) -> Optional[int]:
    text = _text(folder, name).strip()
    return int(text) if text.isdigit() else None


def _entries(folder: str, name: str) -> dict[str, int]:
    pairs = (line.partition(" ") for line in _text(folder, name).splitlines())
    return {key: int(value) for key, _, value in pairs if value.strip().isdigit()}


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
