"""The states of the gate as the hub goes through them, and which may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set


class GateState(enum.Enum):
    """States of the gate. RELEASED and JUDGED are its two ends."""

    CHECKING_IN = "waits for all nodes to check in"
    MESHING = "waits for the results of all paths"
    SMOKING = "waits for the ranks' own collective"
    UNBINDING = "waits for node 0 to give up the master port"
    RELEASED = "has let all nodes pass"
    JUDGED = "has sent the verdict"


NEXT: Mapping[GateState, Set[GateState]] = {
    GateState.CHECKING_IN: {GateState.MESHING, GateState.RELEASED, GateState.JUDGED},  # RELEASED: a later hub
    GateState.MESHING: {GateState.SMOKING, GateState.UNBINDING, GateState.JUDGED},
    GateState.SMOKING: {GateState.UNBINDING, GateState.JUDGED},
    GateState.UNBINDING: {GateState.RELEASED, GateState.JUDGED},
    GateState.RELEASED: set(),
    GateState.JUDGED: set(),
}
ENDS = (GateState.RELEASED, GateState.JUDGED)
