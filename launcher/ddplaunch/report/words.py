"""Formats numbers and times for people, colours words, and escapes text for HTML."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import duration as duration
from ddplaunch.agent.text.quantities import exact_size, plural
from ddplaunch.agent.text.quantities import some as some

size = exact_size


def escape(text: str) -> str:
    """Return the text, printable and escaped for HTML, including `<pre>` and attributes."""
    return html.escape(printable(text, lines=True))


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{number:,} {plural(number, noun)}"


def sweep_text(values: Mapping[str, str]) -> str:
    """Return a job's own values in a sweep: `env.LR=0.1 command[2]=3`."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def and_more(left: int, what: str) -> list[str]:
    """Return ['and 2 more ranks'] for the end of a list that was cut off; empty if nothing is left."""
    return [f"and {count(left, f'more {what}')}"] if left > 0 else []


def clock(at: float) -> str:
    """Return the date and the local time."""
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
