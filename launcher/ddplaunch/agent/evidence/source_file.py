"""Opens the source of a program that runs, without a wait for a pipe."""

from __future__ import annotations

import os
import stat
from typing import IO, Optional


def opened(path: str, largest: int, unchanged_since: float) -> Optional[IO[bytes]]:
    """Return a regular file of at most `largest` bytes; None where it is none, or has changed since.

    Raises OSError where it cannot be opened, ValueError for a path that cannot be.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115 - the caller's
    facts = os.fstat(file.fileno())
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= largest and facts.st_mtime <= unchanged_since:
        return file
    file.close()
    return None
