"""Handles signals to a command that runs a job in the foreground, from its start to its end."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import StopRequest
from ddplaunch.agent.system import signals
from ddplaunch.agent.system.processes import STOPPING

if TYPE_CHECKING:
    from ddplaunch.agent.system.signals import Received, SignalReader
    from ddplaunch.backends.local.host import Child

_KEYS = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGQUIT): "Ctrl-\\"}
_PAUSE = 6.5
"""Seconds for a job to stop at Ctrl-Z, if its command has a handler that does something before."""
_POLL = 0.01


class StopRequested(BaseException):
    """A signal asked for the end before there was a job. No `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stops:
    """Takes signals for a job.

    Before there is a job, those that ask for the end raise StopRequested, and the others have their usual
    effect; what the caller ignores has none. From `hold` on all are kept, and `attend` passes them on.
    """

    def __init__(self) -> None:
        self._reader: SignalReader | None = None
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)

    def hold(self) -> None:
        """Keep signals from now on until there is a job: its start must not be interrupted."""
        self._reader = signals.SignalReader()

    def attend(self, child: Child, pass_on: Callable[[StopRequest], None], *, raw: bool = False) -> int:
        """Wait for the end of the job's host process, and pass on signals. Returns its exit code.

        `raw`: the command is in our process group, and has got what the keyboard sends by itself.
        """
        assert self._reader is not None
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        descriptor = os.pidfd_open(child.pid)
        poll.register(descriptor, select.POLLIN)
        pausing = 0.0
        try:
            while (code := child.poll()) is None:
                poll.poll(1000 * _POLL if pausing else None)
                for received in self._reader.read():
                    if not (raw and received.by_terminal) or received.number in signals.PAUSES:
                        pass_on(_request(received))
                    if received.number in signals.PAUSES:
                        pausing = time.monotonic() + _PAUSE
                    elif received.number == signal.SIGCONT:
                        pausing = 0.0
                if pausing and child.host.stopped():
                    pausing = 0.0
                    self._pause(pass_on)
                elif time.monotonic() > pausing:
                    pausing = 0.0  # it has a handler, and goes on
            return code
        finally:
            os.close(descriptor)

    def end(self) -> None:
        """Ignore further signals after the job's end, which would change the exit code."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, _: object) -> None:
        raise StopRequested(number)

    def _pause(self, pass_on: Callable[[StopRequest], None]) -> None:
        """Stop as the job has, so that the shell gets the terminal back, until `fg` or `bg`."""
        assert self._reader is not None
        stop = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])  # here we stop
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
        signal.signal(signal.SIGTSTP, stop)
        for received in self._reader.read():
            if received.number != signal.SIGCONT:
                pass_on(_request(received))
        # Also where we did not stop, because no shell is there to continue us.
        pass_on(StopRequest(signal.SIGCONT, ""))


def _request(received: Received) -> StopRequest:
    """Return who has sent it."""
    key = _KEYS.get(received.number) if received.by_terminal else None
    who = key or f"{signals.name(received.number)}{signals.sender(received)}"
    return StopRequest(received.number, who, received.to_group)
