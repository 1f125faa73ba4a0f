"""The words of fields that take one of a few.

mypy checks the words where they are written, `codec` when they are read.
"""

from __future__ import annotations

from typing import Final, Literal

PhaseName = Literal[
    "starting",
    "gate",
    "rendezvous",
    "init_process_group",
    "first collective",
    "running",
    "finalizing",
    "ended",
]


class Phase:
    """Phases of a node or a job, in order."""

    STARTING: Final = "starting"  # no message of the node's agent yet
    GATE: Final = "gate"
    RENDEZVOUS: Final = "rendezvous"  # the launch command runs, its workers do not yet
    INIT: Final = "init_process_group"  # workers run, no process group yet
    FIRST: Final = "first collective"  # process group made, nothing completed
    RUNNING: Final = "running"
    FINALIZING: Final = "finalizing"  # some ranks of the node have ended
    ENDED: Final = "ended"

    ORDER: tuple[PhaseName, ...] = (
        STARTING,
        GATE,
        RENDEZVOUS,
        INIT,
        FIRST,
        RUNNING,
        FINALIZING,
        ENDED,
    )


StandingName = Literal["newcomer", "left out"]


class Standing:
    """Why a node is none of the job's, or not yet one."""

    NEWCOMER: Final = "newcomer"  # waits at its gate until the job lets it in
    LEFT_OUT: Final = "left out"  # the job goes on without it


class Posture:
    """Places where a rank stands, by its sockets and threads alone."""

    BEFORE: Final = "before"  # not connected to the store
    INIT: Final = "store"  # connected to the store alone
    COLLECTIVE: Final = "collective"
    OWN: Final = "own"  # in no collective


StatusName = Literal["pass", "fail", "unknown"]


class Status:
    """Results of a check. UNKNOWN never fails a job by itself."""

    PASS: Final = "pass"
    FAIL: Final = "fail"
    UNKNOWN: Final = "unknown"


Outcome = Literal[
    "ok", "refused", "timeout", "unreachable", "reset", "stranger", "shared", "stalled", "lossy"
]
"""Result of trying a path to a peer."""

Where = Literal["spec", "gate", "launch", "run"]
"""The stage of a job to which a verdict belongs."""


class Marks:
    """Beginnings of lines in a log by which a program finds what was printed there."""

    BUNDLE: Final = "-----BEGIN DDPLAUNCH BUNDLE-----"
    BUNDLE_END: Final = "-----END DDPLAUNCH BUNDLE-----"
    FRAME: Final = "----"  # begins the first line of a verdict, and the last
