"""The states of a running job as the hub goes through them, and which may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set


class RunState(enum.Enum):
    """States of the run. CLOSING is its end. Evidence is collected in WATCHING and JUDGING."""

    WATCHING = "takes heartbeats, and looks for stalls and missing nodes"
    JUDGING = "waits for evidence of ranks that have ended, to judge it"
    CLOSING = "has sent the end, and waits for all nodes to leave"


NEXT: Mapping[RunState, Set[RunState]] = {
    RunState.WATCHING: {RunState.JUDGING, RunState.CLOSING},
    RunState.JUDGING: {RunState.WATCHING, RunState.CLOSING},  # WATCHING: the launch command goes on
    RunState.CLOSING: set(),
}
