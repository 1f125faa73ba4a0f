"""Signals to a command that carries a job in the foreground, from its first line to its last."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ddplaunch.agent.system.processes import STOPPING


class StopRequested(BaseException):
    """A signal asked for the end before there was a job. No Exception: no handler of mishaps takes it."""


class Stops:
    """Takes SIGINT, SIGTERM, SIGHUP and SIGUSR2, but what our caller chose to ignore (nohup)."""

    def __init__(self) -> None:
        self.requested = False
        self._starting = False
        self._waiting: list[signal.Signals] = []
        self._pass_on: Callable[[signal.Signals], None] | None = None
        for number in (*STOPPING, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda received, _: self._receive(signal.Signals(received)))

    def hold(self) -> None:
        """Keep what comes from now on until there is a job: half a start must not be broken off."""
        self._starting = True

    def pass_on(self, to: Callable[[signal.Signals], None]) -> None:
        """The job is there: hand it what came, and what will come."""
        self._pass_on = to
        self._hand_over()

    def end(self) -> None:
        """The job is over: one more signal of those who stopped it shall not change our exit code."""
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
