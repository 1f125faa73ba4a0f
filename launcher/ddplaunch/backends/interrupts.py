"""Ctrl-C while a job is sent: it breaks off long waits, and nothing between them and the handle."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Kept:
    """`came`: a Ctrl-C was kept."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, *_: object) -> None:
        self.came = True


@contextlib.contextmanager
def kept() -> Iterator[Kept]:
    """SIGINT inside is noted, and breaks off nothing but what is `let_through`.

    One that came decides what is left to do, which is bounded: from then on SIGINT is ignored.
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
    """A wait inside `kept`, or outside, that may take long: SIGINT raises KeyboardInterrupt."""
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
    """SIGINT is ignored inside, where all waits are bounded. A thread gets none, and changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
