"""Numbers and times in a person's words; other people's words in a page of HTML."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable

from ddplaunch.agent.text.printable import printable


def escape(text: str) -> str:
    """Return the text as HTML may hold it, also in `<pre>` and attributes: no markup, and printable."""
    return html.escape(printable(text, lines=True))


def ranges(numbers: Iterable[int]) -> str:
    """`0-2, 5` for 0 1 2 5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def some(noun: str, numbers: Iterable[int]) -> str:
    """`rank 5`, `ranks 0-2, 5`."""
    listed = list(numbers)
    return f"{noun} {ranges(listed)}" if len(set(listed)) == 1 else f"{noun}s {ranges(listed)}"


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Two units at most: `4.2 s`, `42 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)


def size(number: float) -> str:
    """`812 B`, `64 MiB`, `1.5 GiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.1f}".removesuffix(".0") + f" {units[0]}"


def clock(at: float) -> str:
    """Time of day here, with the date: logs of a long job span days."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "at no known time"  # a record is broken, and the others are shown all the same
