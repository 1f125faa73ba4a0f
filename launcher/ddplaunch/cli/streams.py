"""Prepares the standard streams for every command, whatever the caller closed, and in every locale."""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Open streams that the caller has closed, and write UTF-8.

    A job file is UTF-8, and a rendered file must have the same bytes in every locale. Other bytes, as in a
    file's name, are written as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing(mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def silence() -> None:
    """Discard further output: Python would report what it cannot write when it closes stdout."""
    sys.stdout = _nothing("w")


def _nothing(mode: str) -> io.TextIOWrapper:
    """Return a stream of os.devnull, which is open as long as the process runs."""
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - open for life
    assert isinstance(stream, io.TextIOWrapper)
    return stream
