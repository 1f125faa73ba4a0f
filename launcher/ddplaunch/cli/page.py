"""A report that somebody wants as a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ddplaunch.errors import UsageError


def write(path: Path, text: str) -> None:
    """Whole or not at all: somebody may have the old page open."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    sys.stderr.write(f"wrote {path}\n")
