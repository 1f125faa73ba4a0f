"""Handles signals to a command that runs a job in the foreground, from its start to its end."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ddplaunch.agent.system.processes import STOPPING


class StopRequested(BaseException):
    """A signal asked for the end before there was a job. No `except Exception` catches it."""


class Stops:
    """Handler of SIGINT, SIGTERM, SIGHUP and SIGUSR2, except those that the caller ignores (nohup)."""

    def __init__(self) -> None:
        self.requested = False
        self._starting = False
        self._waiting: list[signal.Signals] = []
        self._pass_on: Callable[[signal.Signals], None] | None = None
        for number in (*STOPPING, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda received, _: self._receive(signal.Signals(received)))

    def hold(self) -> None:
        """Keep signals from now on until there is a job: its start must not be interrupted."""
        self._starting = True

    def pass_on(self, to: Callable[[signal.Signals], None]) -> None:
        """Pass signals to the job by `to`, those that were kept first."""
        self._pass_on = to
        self._hand_over()

    def end(self) -> None:
        """Ignore further signals after the job's end, which would change the exit code."""
        for number in STOPPING if self.requested else ():
            signal.signal(number, signal.SIG_IGN)

    def _receive(self, number: signal.Signals) -> None:
        if number is not signal.SIGUSR2:
            self.requested = True
            if not self._starting:
                raise StopRequested
        self._waiting.append(number)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._pass_on is not None and self._waiting:
            self._pass_on(self._waiting.pop(0))
