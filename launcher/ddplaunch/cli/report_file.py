"""The file into which a report is written: checked before the work, written whole."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from ddplaunch.errors import UsageError


def check(path: Path) -> None:
    """Raises UsageError when `write` would: before work of minutes, whose result would be lost."""
    temporary = _beside(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _refused(path, error) from error


def write(path: Path, text: str) -> None:
    """Whole or not at all: somebody may have the old page open."""
    temporary = _beside(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise _refused(path, error) from error
    sys.stderr.write(f"wrote {path}\n")


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}"


def _refused(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror}",
        hint="name a file in a folder that is there, has room, and that you may write to",
    )
