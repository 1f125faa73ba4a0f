"""Errors that the launcher raises for a person to read, and the exit codes that they mean.

::

    DdplaunchError                UNEXPECTED    raised as it is only when no class below fits
    ├── UsageError                USAGE         the command line asks for something that cannot be done
    │   └── SourceTooLargeError   USAGE         `source` does not fit into what travels with a job
    ├── SpecError                 USAGE         the job file has problems (ddplaunch.spec)
    ├── NotFoundError             NOT_FOUND     no such job, file of a job, or verdict code
    └── ClusterError              CLUSTER       a scheduler refused, or cannot be reached
        ├── UncertainError        CLUSTER       nobody knows whether it took the job (ddplaunch.backends)
        ├── RefusedError          CLUSTER       an API server said no, and why (ddplaunch.backends)
        └── SilentError           CLUSTER       an API server said nothing in time (ddplaunch.backends)

How a job ended (`FAILED`, `HANG`, …) is a result, not an error: the command line reports it, nobody
raises it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Every code `ddplaunch` can end with; scripts rely on them."""

    SUCCEEDED = 0
    UNEXPECTED = 1
    USAGE = 2
    FAILED = 100
    NOT_FINISHED = 101
    NOT_FOUND = 102
    CANCELLED = 103
    GATE = 104
    HANG = 105
    CLUSTER = 106


class DdplaunchError(Exception):
    """An error that a person can act on: `message` says what and where, `hint` what to do next, if known."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        from ddplaunch.agent.text.printable import printable  # which a command that goes well does without

        hint = f"\n\nhint: {self.hint}" if self.hint else ""
        return printable(f"error: {self.message}{hint}", lines=True)


class UsageError(DdplaunchError):
    """The error for a request that cannot be done; asking again will not help."""

    exit_code = ExitCode.USAGE


class SourceTooLargeError(UsageError):
    """`source` holds more bytes than may travel with a job."""


class NotFoundError(DdplaunchError):
    """No job, file of a job, or verdict code of that name."""

    exit_code = ExitCode.NOT_FOUND


class ClusterError(DdplaunchError):
    """The scheduler refused, or cannot be reached."""

    exit_code = ExitCode.CLUSTER
