"""Formats numbers and times for people, colours words, and escapes text for HTML."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.ranges import some as some


def escape(text: str) -> str:
    """Return the text, printable and escaped for HTML, also in `<pre>` and attributes."""
    return html.escape(printable(text, lines=True))


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def sweep_text(values: Mapping[str, str]) -> str:
    """Return a job's own values in a sweep: `env.LR=0.1 command[2]=3`."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def duration(seconds: float) -> str:
    """Return a duration in at most two units: `4.2 s`, `42 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
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
    """Return a number of bytes as `812 B`, `64 MiB` or `1.5 GiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.1f}".removesuffix(".0") + f" {units[0]}"


def and_more(left: int, what: str) -> list[str]:
    """Return ['and 2 more ranks'] behind a list that was cut off; empty where nothing is left."""
    return [f"and {count(left, f'more {what}')}"] if left > 0 else []


def clock(at: float) -> str:
    """Return date and local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "at no known time"  # a record is broken, and the others are shown all the same


# --- colours: every text must read the same without them


@dataclass(frozen=True)
class Paint:
    """Adds terminal escapes to words if `on`."""

    on: bool = False

    def bad(self, text: str) -> str:
        return self._around("1;31", text)

    def good(self, text: str) -> str:
        return self._around("32", text)

    def odd(self, text: str) -> str:
        return self._around("33", text)

    def _around(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


PLAIN = Paint()
