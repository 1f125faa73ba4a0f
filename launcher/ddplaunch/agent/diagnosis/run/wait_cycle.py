"""Finds a circle in which each waits for the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def find(waits: Mapping[int, Sequence[int]]) -> list[int]:
    """Return ranks of which each waits for the next, and the last for the first; empty: there is no circle.

    `waits`: rank -> the ranks without which it cannot go on. It begins with the smallest of its ranks.
    """
    passed: set[int] = set()
    for first in sorted(waits):
        path: list[int] = []
        branches = [iter([first])]
        while branches:
            rank = next(branches[-1], None)
            if rank is None:
                branches.pop()
                if path:
                    passed.add(path.pop())
            elif rank in path:
                circle = path[path.index(rank) :]
                start = circle.index(min(circle))
                return circle[start:] + circle[:start]
            elif rank in waits and rank not in passed:
                path.append(rank)
                branches.append(iter(waits[rank]))
    return []
