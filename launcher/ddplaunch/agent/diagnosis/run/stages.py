"""The stages in which the rules of a run are asked."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """Stages in their order. In one, modules are asked by their names, the rules of one as it lists them."""

    # The end of a rank, or of a node, explains all that comes after it. The first verdict is the only one.
    NODE_LOST = 10
    MESSAGES_COMPARED = 11  # a rank died over a message that its receive could not hold, and reported it
    CALLS_COMPARED = 12  # a rank died over a call that its peers did not make, and reported it
    STOPPED_OUTSIDE = 13
    LAUNCH_FAILED = 14
    OUT_OF_MEMORY = 15
    KILLED = 16
    FAILED = 17

    # Ranks out of step never meet again, whatever else moves.
    SWALLOWED = 20
    OUT_OF_STEP = 21

    # Nothing moves: what no rank in its own code, or in its data loader, is to blame for.
    SUSPENDED = 30
    GONE_FROM_MPI = 31  # asked of a job that died, too
    MPI = 32  # these abstain unless all ranks are in MPI
    FINISHED_EARLY = 33  # asked of a job that died, too
    GROUP = 34
    DEVICES = 35  # all ranks agree, and what is below torch stands still

    # Each speaks of its own ranks, and every verdict counts. A rank that an exact cause explains is left
    # out of what comes after.
    STRAGGLER_CAUSE = 40
    STRAGGLER = 41

    SLOW = 50  # asked of a job that moves, and only at `diagnose`


ENDS = range(Stage.NODE_LOST, Stage.SWALLOWED)
CERTAIN = range(Stage.SWALLOWED, Stage.SUSPENDED)
STANDSTILL = range(Stage.SUSPENDED, Stage.STRAGGLER_CAUSE)
STRAGGLERS = range(Stage.STRAGGLER_CAUSE, Stage.STRAGGLER + 1)
GONE = (Stage.GONE_FROM_MPI, Stage.FINISHED_EARLY)
