"""Reads the source at which threads stand, its lines and its loops, where the rank itself would read it.

By a program's loops a rank is known that has left one. Nothing of the program is run.
"""

from __future__ import annotations

import ast
import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Frame, Handler
from ddplaunch.agent.system import files, proc
from ddplaunch.agent.text.printable import printable

WAIT = 0.5
"""Seconds for all files: they may lie on the storage that has stopped to answer."""
_LONGEST = 160
_LARGEST = 4 << 20
"""Bytes of a file that is read."""
_LINES = 200
_LOOP_LENGTH = 6
"""Lines of a loop, at most, to a sleep in it."""
_FILES = 16
"""Whose loops are looked for."""


class SourceLines:
    """Reads in a thread of its own. Once that does not come back, nothing more is read."""

    def __init__(self) -> None:
        self._stuck = False

    def read(self, frames: Iterable[tuple[Frame, int]]) -> dict[str, str]:
        """Return text by "FILE:LINE" of frames, each with the number of its process."""
        return self._within(_read_lines, sorted(frames, key=str)[:_LINES])

    def find_loops(self, files: Mapping[str, int], unchanged_since: float) -> dict[str, list[list[int]]]:
        """Return the loops in files, as `read_loops` does; one that cannot be read is left out.

        `files`: by path, a process that knows the file by it.
        """
        return self._within(_read_loops, list(files.items())[:_FILES], unchanged_since)

    def find_handlers(self, files: Mapping[str, int], unchanged_since: float) -> dict[str, list[Handler]]:
        """Return the handlers in files, as `find_loops` does the loops."""
        return self._within(_read_handlers, list(files.items())[:_FILES], unchanged_since)

    def _within(self, read: Callable[..., None], wanted: list[Any], *more: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        if wanted and not self._stuck:
            reader = threading.Thread(target=read, args=(results, wanted, *more), daemon=True)
            with contextlib.suppress(RuntimeError):  # the ranks have used up all threads: no line is shown
                reader.start()
                reader.join(WAIT)
                self._stuck = reader.is_alive()
        return dict(results)


def key(frame: Frame) -> str:
    """Return the name of its line in NodeEvidence.lines."""
    return f"{frame.file}:{frame.line}"


def _read_lines(texts: dict[str, str], wanted: list[tuple[Frame, int]]) -> None:
    for frame, pid in wanted:
        if key(frame) in texts:
            continue  # ranks that stand at one line share its text: nothing is read or parsed again
        with contextlib.suppress(OSError, ValueError):
            path, since = proc.path_from_here(pid, frame.file), _started(pid)
            text = line(path, frame.line, since)
            if "sleep(" in text:
                text = _loop_until(path, frame.line, since)[:_LONGEST] or text
            if text:
                texts[key(frame)] = text


def _loop_until(path: str, number: int, since: float) -> str:
    """Return the lines of the loop around a line, as far as this one: what it waits for is in them."""
    around = [begin for begin, end in read_loops(path, since) or () if begin <= number <= end]
    first = max((begin for begin in around if begin > number - _LOOP_LENGTH), default=number)
    return " ".join(line(path, each, since) for each in range(first, number + 1))


def _read_loops(
    by_file: dict[str, list[list[int]]], files: list[tuple[str, int]], unchanged_since: float
) -> None:
    for file, pid in files:
        lines = read_loops(proc.path_from_here(pid, file), unchanged_since)
        if lines is not None:
            by_file[file] = lines


def line(path: str, number: int, unchanged_since: float) -> str:
    """Return a line of a regular file, counted from 1; "" where the file is another one by now.

    Raises OSError or ValueError where it cannot be read.
    """
    file = files.open_unchanged(path, _LARGEST, unchanged_since)
    if file is None:
        return ""
    with file:
        text = next(islice(file, max(number - 1, 0), None), b"").decode(errors="replace")
    return printable(text.strip())[:_LONGEST]


def _started(pid: int) -> float:
    """Return the moment of a process's start, in seconds since the epoch. Raises ValueError without it."""
    facts = proc.stat(pid)
    if facts is None:
        raise ValueError(pid)
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + facts.started / os.sysconf("SC_CLK_TCK")


def _read_handlers(
    by_file: dict[str, list[Handler]], files: list[tuple[str, int]], unchanged_since: float
) -> None:
    for file, pid in files:
        found = read_handlers(proc.path_from_here(pid, file), unchanged_since)
        if found is not None:
            by_file[file] = found


_LARGEST_PROGRAM = 1 << 20
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))


def read_loops(path: str, unchanged_since: float) -> Optional[list[list[int]]]:
    """Return [first line, last line] of each loop statement, without its `else`.

    None where the file cannot be read as Python, is large, or was changed after the moment `unchanged_since`.
    """
    tree = _parsed(path, unchanged_since)
    if tree is None:
        return None
    return sorted(_span([loop, *loop.body]) for loop in ast.walk(tree) if isinstance(loop, _LOOPS))


def read_handlers(path: str, unchanged_since: float) -> Optional[list[Handler]]:
    """Return where the program goes on only to raise again what has been raised. None as `read_loops`.

    That is a `finally` without a `return`, an `except` that ends with `raise`, or the `__exit__` of a `with`,
    which may as well keep the exception for itself, but comes back at once then.
    """
    tree = _parsed(path, unchanged_since)
    if tree is None:
        return None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            heads = [item.context_expr for item in node.items]
            found.append(Handler("with", _span(node.body), [node.lineno, _span(heads)[1]]))
        elif isinstance(node, _TRIES):
            if node.finalbody and not _returns(node.finalbody):
                guarded = _span([*node.body, *node.handlers, *node.orelse])
                found.append(Handler("finally", guarded, _span(node.finalbody)))
            found += [
                Handler("except", _span(node.body), _span(handler.body))
                for handler in node.handlers
                if isinstance(handler.body[-1], ast.Raise)
            ]
    return sorted(found, key=lambda handler: handler.lines)


def _returns(body: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.Return) for each in body for node in ast.walk(each))


def _span(nodes: Sequence[Any]) -> list[int]:
    """Return the first line of the first of these nodes, and the last line of the last."""
    return [nodes[0].lineno, nodes[-1].end_lineno or nodes[-1].lineno]


def _parsed(path: str, unchanged_since: float) -> Optional[ast.AST]:
    try:
        file = files.open_unchanged(path, _LARGEST_PROGRAM, unchanged_since)
        if file is None:
            return None
        with file:
            return ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
