"""Programs on a terminal of their own, what it shows, and what is typed at it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

from tests.local.conftest import Desk

SPAWN = """
import os, pty, sys
os.environ["TERM"] = "xterm"
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""


def spawned(desk: Desk, *words: str) -> subprocess.Popen[bytes]:
    """Any program on a terminal of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SPAWN, *words],
        cwd=desk.folder,
        env=desk.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def read_until(stream: IO[bytes] | None, text: bytes) -> bytes:
    """What the terminal showed until `text` was there."""
    assert stream is not None
    seen = b""
    while text not in seen:
        piece = os.read(stream.fileno(), 65536)
        assert piece, f"{text!r} never came: {seen[-2000:]!r}"
        seen += piece
    return seen


def typed(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Types it at the terminal."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()
