"""The launcher's errors, whose messages users read, and the exit codes.

::

    DdplaunchError                UNEXPECTED    raised itself only if no class below fits
    ├── UsageError                USAGE         the command line asks for something that cannot be done
    │   └── SourceTooLargeError   USAGE         `source` does not fit into what travels with a job
    ├── SpecError                 USAGE         the job file has problems (ddplaunch.spec)
    ├── NotFoundError             NOT_FOUND     no such job, file of a job, or verdict code
    ├── NotFinishedError          NOT_FINISHED  a job still runs at the end of a wait
    ├── NeverStartsError          GATE          a job is pending for a reason that waiting never cures
    └── ClusterError              CLUSTER       a scheduler refused, or cannot be reached
        ├── UncertainError        CLUSTER       it is not known whether it has the job (ddplaunch.backends)
        ├── NamesakeError         CLUSTER       another job has the name (ddplaunch.backends)
        ├── RefusedError          CLUSTER       an API server refused a request (ddplaunch.backends)
        └── SilentError           CLUSTER       an API server did not answer in time (ddplaunch.backends)

How a job ended (`FAILED`, `HANG`, …) is a result: the command line reports it, and no error is raised.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Every exit code of `ddplaunch`. Scripts rely on them."""

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
    """An error for a user: `message` says what is wrong and where, `hint` what to do, if that is known."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        from ddplaunch.agent.text.printable import printable  # imported only for an error

        hint = f"\n\nhint: {self.hint}" if self.hint else ""
        return printable(f"error: {self.message}{hint}", lines=True)


class UsageError(DdplaunchError):
    """The command line or its input is wrong; a retry does not help."""

    exit_code = ExitCode.USAGE


class SourceTooLargeError(UsageError):
    """`source` has more bytes than may travel with a job."""


class NotFoundError(DdplaunchError):
    """There is no job, file of a job, or verdict code with that name."""

    exit_code = ExitCode.NOT_FOUND


class NotFinishedError(DdplaunchError):
    """The job is still running at the end of a wait. It goes on."""

    exit_code = ExitCode.NOT_FINISHED


class NeverStartsError(DdplaunchError):
    """The job is pending for a reason that waiting never cures. It stays in the queue."""

    exit_code = ExitCode.GATE


class ClusterError(DdplaunchError):
    """The scheduler refused, or cannot be reached."""

    exit_code = ExitCode.CLUSTER
