"""Finds out what the terminal at a stream can show."""

from __future__ import annotations

import os
import shutil
from typing import IO

from ddplaunch.report.paint import PLAIN, Paint


def paint(stream: IO[str]) -> Paint:
    """Colour for a terminal whose user has not said NO_COLOR."""
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return PLAIN if plain else Paint(on=True)


def width(stream: IO[str]) -> int | None:
    """Columns to fold text at. None for what is no terminal: a file's lines are folded by who reads it."""
    return shutil.get_terminal_size().columns if stream.isatty() else None
