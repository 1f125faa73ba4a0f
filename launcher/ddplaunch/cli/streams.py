"""The three standard streams as every verb needs them, whoever called us and in whatever locale."""

from __future__ import annotations

import io
import os
import sys


def prepare() -> None:
    """Opens what the caller has closed, and writes UTF-8.

    A job file is UTF-8, and what is rendered from it must be the same bytes in every locale. What cannot be
    written even so, such as a file's name of odd bytes, is shown with escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing(mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def silence() -> None:
    """No more is written to stdout: Python would complain of what is left when it closes the stream."""
    sys.stdout = _nothing("w")


def _nothing(mode: str) -> io.TextIOWrapper:
    """Lives as long as the process."""
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - open for life
    assert isinstance(stream, io.TextIOWrapper)
    return stream
