"""Reads the limits and counters of control groups, version 1 and 2.

A container sees its own group as the root of the mount; a batch step sees a path below it. The mount table
tells which. Of the limits of a group and its parents, the tightest is the one that kills.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Optional

_UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned number."""


class Memory(NamedTuple):
    limit: Optional[int]  # bytes; None: no limit
    used: Optional[int]  # bytes, of the group that has this limit
    oom_kills: int  # so far, in the group and below


class Cpu(NamedTuple):
    periods: int  # so far, those in which the group could run
    throttled: int  # of these, those in which its quota ended early
    limit: float = 0.0  # CPUs


def memory(root: str = "/", pid: str = "self") -> Memory:
    """Return the limit, use and kills of a process's group. `root` replaces "/" in tests."""
    tightest: tuple[int, Optional[int]] = (_UNLIMITED, None)
    kills = 0
    for folder in _folders("memory", root, pid):
        limit = _number(folder, "memory.max") or _number(folder, "memory.limit_in_bytes")
        used = _number(folder, "memory.current") or _number(folder, "memory.usage_in_bytes")
        if limit is not None and limit < tightest[0]:
            tightest = (limit, used)
        # Version 2's counters include the groups below, version 1's do not. The largest one fits both.
        for name in ("memory.events", "memory.oom_control"):
            kills = max(kills, _entries(folder, name).get("oom_kill", 0))
    if tightest[0] >= _UNLIMITED:
        return Memory(None, None, kills)
    return Memory(tightest[0], tightest[1], kills)


def cpu(root: str = "/", pid: str = "self") -> Optional[Cpu]:
    """Return the tightest limit and the throttling of a process's group; None if no group has a quota."""
    quotas = []
    for folder in _folders("cpu", root, pid):
        entries = _entries(folder, "cpu.stat")
        if entries.get("nr_periods"):
            quotas.append(Cpu(entries["nr_periods"], entries.get("nr_throttled", 0), _cpus(folder)))
    return min(quotas, key=lambda each: each.limit or float("inf"), default=None)


def tasks(root: str = "/") -> list[tuple[int, int]]:
    """Return the limit and the number of processes and threads for our group, and for those above that have a
    limit.
    """
    pairs = ((_number(each, "pids.max"), _number(each, "pids.current")) for each in _folders("pids", root))
    return [(limit, used) for limit, used in pairs if limit is not None and used is not None]


def _cpus(folder: str) -> float:
    """Return the quota in CPUs; 0: none."""
    quota, _, period = _text(folder, "cpu.max").strip().partition(" ")
    quota = quota or _text(folder, "cpu.cfs_quota_us").strip()
    period = period or _text(folder, "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else 0.0


def _folders(controller: str, root: str, pid: str = "self") -> Iterator[str]:
    """Yield a process's folders under `controller`, the innermost first, in either version's hierarchy."""
    paths = {}
    for line in _text(root, f"proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    ours = list(_mounts(controller, root, "self", paths))
    if pid != "self" and ours and all(inside.startswith("..") for _, inside in ours):
        # It is in another container: our mount shows our own group, and its mount shows its group.
        ours = list(_mounts(controller, root, pid, paths))
    for top, inside in ours:
        # This path is outside the mount, so the group that we see is the mount itself.
        folder = top if inside.startswith("..") else os.path.normpath(os.path.join(top, inside))
        while True:
            yield folder
            if folder == top or len(folder) <= len(top):
                break
            folder = os.path.dirname(folder)


def _mounts(controller: str, root: str, pid: str, paths: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the folders in which a process sees the hierarchy, and the paths of the groups from there."""
    place = root if pid == "self" else os.path.join(root, f"proc/{pid}/root")
    for line in _text(root, f"proc/{pid}/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mounted_root, point = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        key = "" if kind == "cgroup2" else controller
        if kind not in ("cgroup", "cgroup2") or key not in paths:
            continue
        if kind == "cgroup" and controller not in options.split(","):
            continue
        path, above = paths[key].rstrip("/") + "/", mounted_root.rstrip("/") + "/"
        # A path beside the root of our own namespace is "/../x".
        inside = path[len(above) :] if path.startswith(above) else ".."
        yield os.path.join(place, point.lstrip("/")), inside


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
