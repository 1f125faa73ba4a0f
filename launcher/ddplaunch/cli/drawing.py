"""Gives the terminal back while a command that draws on it is suspended, and before a signal ends it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from ddplaunch.report.live import StateView

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _EndedError(BaseException):
    """A signal ends the command. No `except Exception` catches it."""


@contextlib.contextmanager
def drawn(view: StateView) -> Iterator[None]:
    """Show the view inside, and nothing of it while the command is suspended by Ctrl-Z.

    SIGTERM and SIGHUP end the command as if it did not handle them, once the terminal is as it was before.
    Signals that the caller ignores stay ignored, and those that it handles stay handled.
    """
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise _EndedError

    def suspend(number: int, _: FrameType | None) -> None:
        view.__exit__(None, None, None)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # returns when the command goes on
        signal.signal(number, suspend)
        view.__enter__()

    own = {signal.SIGTSTP: suspend, **dict.fromkeys(_ENDING, end)}
    kept = {number: signal.getsignal(number) for number in own}
    taken = [number for number, handler in kept.items() if handler is signal.SIG_DFL]
    try:
        with view:
            for number in taken:
                signal.signal(number, own[number])
            yield
    except _EndedError:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), received[0])
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
