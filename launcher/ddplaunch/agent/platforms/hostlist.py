"""Slurm's short form of node names, `n[1-3,07],gpu[0-1]-[a,b]`, as SLURM_JOB_NODELIST has it. Pure.

`scontrol show hostnames` does the same, but a container rarely has it.
"""

from __future__ import annotations

import re

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_LIMIT = 100_000
"""More nodes than any cluster has; a longer list is damaged."""


def expand(text: str) -> list[str]:
    """Return all names, in order. Raises ValueError for other text."""
    parts = _PART.findall(text)
    if ",".join(parts) != text:
        raise ValueError(text)
    return [name for part in parts for name in _names(part)]


def first(text: str) -> str:
    """Return the first name, "" for text that cannot be read."""
    try:
        return next(iter(expand(text)), "")
    except ValueError:
        return ""


def _names(part: str) -> list[str]:
    bracket = _BRACKET.search(part)
    if bracket is None:
        return [part]
    before, after = part[: bracket.start()], _names(part[bracket.end() :]) if part[bracket.end() :] else [""]
    return [before + middle + rest for middle in _middles(bracket[1]) for rest in after]


def _middles(text: str) -> list[str]:
    names: list[str] = []
    for each in text.split(","):
        first, dash, last = each.partition("-")
        if not dash:
            names.append(each)
            continue
        if not first.isdecimal() or not last.isdecimal() or not 0 <= int(last) - int(first) < _LIMIT:
            raise ValueError(each)
        # Zeros in front count: n[08-10] is n08, n09, n10.
        names += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return names
