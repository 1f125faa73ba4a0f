"""Gives a rank its own streams, and keeps a program alive if its output cannot be written, as on a full disk.

In the foreground the launch command prints to pipes or pseudo terminals that ddplaunch has made. A rank that
inherits these gets new ones of the same kind, so that its lines are known to be its own. Streams that the
user's command has redirected stay as they are.

In a job, a rank's stdout and stderr are files below the job's folder. If such a file cannot be written, C
goes on, but Python raises OSError in print(), and exits with 120 when the last flush fails. Here the text is
dropped instead, and a line in the file marks the gap once there is space again. Errors of other files go to
the program as usual.
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
_PATIENCE = 5  # seconds for the carrier's answer


def take_own_streams(carrier: str) -> list[str]:
    """Replace the launch command's streams with our own. Returns the files that keep our output.

    May raise any exception. Then the streams are still those of the launch command.
    """
    import array
    import json
    import socket

    wish: dict[str, Any] = {
        "rank": os.environ.get("RANK"),
        "local": os.environ.get("LOCAL_RANK"),
        "ranks": os.environ.get("LOCAL_WORLD_SIZE"),
        "attempt": os.environ.get("TORCHELASTIC_RESTART_COUNT"),
    }
    for number in (1, 2):
        try:
            status = os.fstat(number)
            wish[str(number)] = (status.st_dev, status.st_ino)
        except OSError:  # the program was started without it
            wish[str(number)] = (0, 0)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(_PATIENCE)
        line.connect("\0" + carrier)
        line.sendall(json.dumps(wish).encode())
        answer, ancillary, _, _ = line.recvmsg(65536, socket.CMSG_SPACE(8))
    finally:
        line.close()
    given = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            given.frombytes(data[: len(data) - len(data) % given.itemsize])
    streams = json.loads(answer)
    for number, descriptor in zip(streams["numbers"], given):
        os.dup2(descriptor, number)
    for descriptor in set(given):
        os.close(descriptor)
    return [str(path) for path in streams["files"]]


def survive_write_errors(lost: Callable[[str], None]) -> None:
    """Make our standard output and error survive write errors. `lost` gets the reason for each gap."""
    for stream in (sys.stdout, sys.stderr):
        try:
            buffer: Any = stream.buffer
            raw = getattr(buffer, "raw", buffer)  # with python -u the buffer is the raw file itself
            if _is_ours(raw.fileno()):
                # The attribute hides the method, and the program keeps its stream objects.
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
