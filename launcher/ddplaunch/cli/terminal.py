"""Finds out whether a stream is a terminal, its colours and its width."""

from __future__ import annotations

import os
import shutil
from typing import IO

from ddplaunch.report.paint import PLAIN, Paint


def paint(stream: IO[str]) -> Paint:
    """Return colours for a terminal, unless its user has set NO_COLOR."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return PLAIN if plain else Paint(on=True)


def width(stream: IO[str]) -> int | None:
    """Return the columns to fold text at; None: the stream is no terminal, and lines stay whole."""
    return shutil.get_terminal_size().columns if stream.isatty() else None
