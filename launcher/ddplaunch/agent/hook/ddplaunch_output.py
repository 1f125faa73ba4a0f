"""Output that a full disk of ours does not turn into the program's failure.

A rank prints into a file below the job's folder, which is our doing. Where that file cannot be written, C
goes on without a word; Python raises OSError in print(), and exits with 120 when the last flush fails. Here
the text is dropped instead, and a line in the file says so once there is room again. Every other file is the
program's own affair, and so are its errors.
"""

# ruff: noqa: UP031 - runs on Python 3.8

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO
    from typing import Any

_JOB = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + "/"


def keep(lost: Callable[[str], None]) -> None:
    """Let standard output and error survive, where they are ours. `lost` is given the reason of every gap."""
    for stream in (sys.stdout, sys.stderr):
        try:
            buffer: Any = stream.buffer
            raw = getattr(buffer, "raw", buffer)  # with python -u they are one
            if _is_ours(raw.fileno()):
                # The attribute hides the method: the streams stay the very objects that the program knows.
                raw.write = _forgiving(raw, lost)
        except Exception:  # the program has closed or replaced the stream
            continue


def _is_ours(number: int) -> bool:
    try:
        return os.readlink("/proc/self/fd/%d" % number).startswith(_JOB)
    except OSError:
        return False


def _forgiving(raw: FileIO, lost: Callable[[str], None]) -> Callable[[Any], Any]:
    write, gap = raw.write, b""

    def forgiving(data: Any) -> Any:
        nonlocal gap
        try:
            if gap:
                write(gap)
                gap = b""
            return write(data)
        except OSError as error:
            if not _is_ours(raw.fileno()):  # the program may have put another file in its place
                raise
            if not gap:
                gap = b"\n... output is missing here: %s\n" % str(error.strerror).encode()
                lost(str(error.strerror))
            return memoryview(data).nbytes

    return forgiving
