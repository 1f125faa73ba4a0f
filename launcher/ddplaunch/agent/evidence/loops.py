"""Finds the loops of a program's file, by which a rank that has left one is known. Runs nothing of it."""

from __future__ import annotations

import ast
from typing import Optional

from ddplaunch.agent.evidence import source_file

_LARGEST = 1 << 20
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def of(path: str, before: float) -> Optional[list[list[int]]]:
    """Return [first line, last line] of each loop statement, without its `else`.

    None where the file cannot be read as Python, is large, or was changed after the moment `before`.
    """
    try:
        file = source_file.opened(path, _LARGEST, before)
        if file is None:
            return None
        with file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return sorted([loop.lineno, loop.body[-1].end_lineno or loop.lineno] for loop in loops)
