"""Does work beside the caller; before the caller goes on, where no more threads may be started."""

from __future__ import annotations

import threading
from typing import Callable, Optional


class Task:
    """Work in a daemon thread, which may be abandoned: a file system or a name server may block it."""

    def __init__(self, work: Callable[..., object], *args: object, name: Optional[str] = None) -> None:
        thread = threading.Thread(target=work, args=args, name=name, daemon=True)
        self._thread: Optional[threading.Thread] = None
        try:
            thread.start()
        except RuntimeError:  # "can't start new thread": the gate's check `threads` reports that
            work(*args)
        else:
            self._thread = thread

    def join(self, seconds: Optional[float] = None) -> None:
        """Wait until it is done, or for so long."""
        if self._thread is not None:
            self._thread.join(seconds)
