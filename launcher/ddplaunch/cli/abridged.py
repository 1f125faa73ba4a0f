"""Prints rendered files: whole to a pipe or a file, without the archives in them to a terminal."""

from __future__ import annotations

import re
import sys
from typing import Final

_ARCHIVE: Final = re.compile(
    r"[A-Za-z0-9+/]{1000,}={0,2}"  # in one line of a manifest
    r"|^(?P<mark>#\S+: )[A-Za-z0-9+/]+={0,2}\n(?:^(?P=mark)[A-Za-z0-9+/]+={0,2}\n){4,}",  # in a batch script
    re.MULTILINE,
)
_SHOWN: Final = 60
"""Characters of an archive that stay: enough to see what stands there."""


def write(text: str) -> None:
    """Print the text on stdout; on a terminal without archives, and say on stderr how to get the whole."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    short, left_out = abridged(text)
    sys.stdout.write(short)
    sys.stdout.flush()
    if left_out:
        sys.stderr.write(
            f"note: on a terminal {left_out:,} characters of packed files are left out; a pipe (`… | less`) "
            "or `ddplaunch render … -o DIR` has everything\n"
        )


def abridged(text: str) -> tuple[str, int]:
    """Return the text with the beginning of each archive alone, and how many characters that left out."""
    left_out = 0

    def cut(match: re.Match[str]) -> str:
        nonlocal left_out
        archive = match[0]
        rest = len(archive) - _SHOWN
        left_out += rest
        return f"{archive[:_SHOWN]}… ({rest:,} more characters of base64)" + "\n" * archive.endswith("\n")

    return _ARCHIVE.sub(cut, text), left_out
