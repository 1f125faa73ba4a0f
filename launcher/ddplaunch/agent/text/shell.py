"""Commands as a person can paste them into bash, zsh or fish."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SAFE = re.compile(r"[A-Za-z0-9_@:,./+-][A-Za-z0-9_@%+=:,./-]*")
"""Not quoted. At its beginning, zsh reads `=x` as a command's path, and fish `%x` as a process."""


def word(text: str) -> str:
    """Return `text` as one word of bash, zsh and fish."""
    if _SAFE.fullmatch(text):
        return text
    if not text:
        return "''"
    # Inside of '…' fish alone reads \\ and \', so these two stand outside, where all three read them.
    parts = re.split(r"(['\\])", text)
    return "".join(f"\\{part}" if part in ("'", "\\") else f"'{part}'" for part in parts if part)


def line(words: Iterable[str]) -> str:
    """Return a command line of these words."""
    return " ".join(map(word, words))
