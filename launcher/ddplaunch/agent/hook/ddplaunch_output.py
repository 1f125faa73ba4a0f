"""Keeps a program alive whose output cannot be written, as on a full disk.

ddplaunch has a rank print into a file below the job's folder. Where that file cannot be written, C goes on;
Python raises OSError in print(), and exits with 120 when the last flush fails. Here the text is dropped
instead, and a line in the file marks the gap once there is space again. Errors of all other files are the
program's.
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
    """Make our standard output and error survive write errors. `lost` gets the reason of each gap."""
    for stream in (sys.stdout, sys.stderr):
        try:
            buffer: Any = stream.buffer
            raw = getattr(buffer, "raw", buffer)  # with python -u they are one
            if _is_ours(raw.fileno()):
                # The attribute hides the method: the streams stay the objects that the program has.
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
