"""What a rank looks for again and again, by the loop in which it sleeps: `while not ready(): time.sleep(1)`.

`view` asks this for the line of a rank that sleeps there. Pure. The rank does not wait for itself: who is to
provide what it looks for is not seen.
"""

from __future__ import annotations

import re
from typing import Optional

from ddplaunch.agent.contract import Branch, Frame, Function

_LOOPS = ("for", "while")
_MOST = 2
"""Conditions that end a loop, at most: of more, none is worth a look."""
_FOR_EVER = re.compile(r"while\s*\(?(True|1)\)?\s*:?")
_CLOCK = re.compile(r"\b(time|monotonic|perf_counter|now|elapsed)\(\)")
_COUNTS = re.compile(r"(?:while|if|elif)\s+(?:not\s+)?(?:[\w.]+\s*[<>]=?\s*[\w.]+|[\w.]+\s*[!=]=\s*\d+)")
"""A comparison with a limit, or with a number: of the rounds, as often as not. `seen == world` is none."""


def awaited(function: Optional[Function], line: Frame) -> str:
    """Return '`len(parts) == world` (gather.py:14)', what ends the loop around a line; "": there is no such
    loop, it goes on for ever, or time or a count of its own ends it.

    Of the nearest loop, these are its own test and the branches that leave it by `break` or `return`.
    """
    every = [] if function is None else function.branches
    loops = [
        each for each in every if each.kind in _LOOPS and (each.has(line.line) or each.line == line.line)
    ]
    loop = max(loops, key=lambda each: each.line, default=None)
    if loop is None:
        return ""
    inner = [each for each in every if each.kind in _LOOPS and each.line > loop.line and loop.has(each.line)]
    found = [
        each
        for each in every
        if each.kind == "if" and each.ends in ("break", "return") and loop.has(each.line)
        if each.ends == "return" or not any(its.has(each.line) for its in inner)
    ]
    if loop.kind == "while":
        found.insert(0, loop)
    found = [each for each in found if _looks(each.text)]
    return " or ".join(_shown(line.file, each) for each in found) if len(found) <= _MOST else ""


def _looks(text: str) -> bool:
    """Whether this condition depends on others, as far as its text shows: not on a clock or a count alone."""
    if _FOR_EVER.fullmatch(text) or _COUNTS.fullmatch(text.rstrip(":")):
        return False
    parts = re.split(r"\b(?:and|or)\b", text)
    return not all(map(_CLOCK.search, parts))


def _shown(file: str, branch: Branch) -> str:
    """'`len(parts) == world` (gather.py:14)', or 'the end of `while busy()` (gather.py:14)'."""
    place = f"({file.rpartition('/')[2]}:{branch.line})"
    if branch.kind == "while":
        plain = re.fullmatch(r"while not ([\w.]+(?:\([^()]*\))?)", branch.text)
        return f"`{plain[1]}` {place}" if plain else f"the end of `{branch.text}` {place}"
    return f"`{re.sub(r'^(el)?if ', '', branch.text).rstrip(':')}` {place}"
