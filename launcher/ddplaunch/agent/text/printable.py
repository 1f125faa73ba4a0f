"""Makes foreign text safe to print: control characters are escaped. Pure.

Ranks, exceptions, host names and the names of groups may hold escape sequences, newlines that begin a line of
their own, and marks that turn the order of letters around.
"""

from __future__ import annotations


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
