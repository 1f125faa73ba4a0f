"""Ctrl-C while a job is being submitted: it interrupts only long waits, so that no job is left without a
handle.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Kept:
    """A SIGINT handler that only remembers. `came`: whether a Ctrl-C has come."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, *_: object) -> None:
        self.came = True


@contextlib.contextmanager
def kept() -> Iterator[Kept]:
    """Inside, remember a SIGINT instead of raising KeyboardInterrupt, except within `let_through`.

    After such a SIGINT the caller only cleans up, in bounded time, so from then on SIGINT is ignored.
    """
    note = Kept()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield note
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield note
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if note.came else before)


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Inside, let SIGINT raise KeyboardInterrupt, even within `kept`: for waits that may take long."""
    note = signal.getsignal(signal.SIGINT)
    if not isinstance(note, Kept) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def break_off(*_: object) -> None:
        signal.signal(signal.SIGINT, note)
        note.came = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, break_off)
        if note.came:
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, note)


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Inside, ignore SIGINT: all waits there are bounded. Only the main thread receives it at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
