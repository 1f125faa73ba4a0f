"""Writes a report to a file, whole or not at all, and checks beforehand that it can be written."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from ddplaunch.errors import UsageError


def check(path: Path) -> None:
    """Raise UsageError if `write` would, before minutes of work whose result would be lost."""
    temporary = _beside(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _refused(path, error) from error


def check_folder(path: Path) -> None:
    """Make the folder if it is not there. Raises UsageError if no file can be written into it."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise _refused(path, error) from error
    check(path / "picture.svg")


def write(path: Path, content: str | bytes) -> None:
    """Write the file, whole or not at all: an old one may be open. Raises UsageError."""
    temporary = _beside(path)
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
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
        hint="name a file in an existing folder with room that you may write to",
    )
