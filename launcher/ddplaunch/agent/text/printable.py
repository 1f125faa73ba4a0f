"""Makes foreign text safe to print, and words safe to paste into a shell. Pure.

Ranks, exceptions, host names and the names of groups may hold escape sequences, newlines that begin a line of
their own, and marks that turn the order of letters around.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class HintedError(Exception):
    """An error for the user: the message is a sentence, `hint` has the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def error_text(error: Exception) -> str:
    """Return what a command prints of an error: its message and, where it has one, its `hint`."""
    hint = getattr(error, "hint", "")
    return printable(f"error: {error}\n" + (f"\nhint: {hint}\n" if hint else ""), lines=True)


def printable(text: str, lines: bool = False) -> str:
    """`text` with escapes, such as `\\x1b`, for all that does not print; `lines`: newlines stay."""
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(char if char.isprintable() or char == kept else repr(char)[1:-1] for char in text)


# --- commands as people can paste them into bash, zsh or fish

_SAFE = re.compile(r"[A-Za-z0-9_@:,./+-][A-Za-z0-9_@%+=:,./-]*")
"""Not quoted. At its beginning, zsh reads `=x` as a command's path, and fish `%x` as a process."""


def shell_word(text: str) -> str:
    """Return `text` as one shell_word of bash, zsh and fish."""
    if _SAFE.fullmatch(text):
        return text
    if not text:
        return "''"
    # Inside of '…' fish alone reads \\ and \', so these two stand outside, where all three read them.
    parts = re.split(r"(['\\])", text)
    return "".join(f"\\{part}" if part in ("'", "\\") else f"'{part}'" for part in parts if part)


def shell_line(words: Iterable[str]) -> str:
    """Return a command shell_line of these words."""
    return " ".join(map(shell_word, words))
