"""Ctrl-C, pressed again while what the first one has left half made is taken back."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """SIGINT is ignored inside, where all waits are bounded. A thread gets none, and changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
