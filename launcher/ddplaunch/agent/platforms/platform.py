"""Describes the differences between schedulers, with one record for each.

The plan names the job's scheduler. If the name is not known, the nodes count as plain machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional

from ddplaunch.agent.contract import Env


class Ends(NamedTuple):
    """When the scheduler ends the job, and because of what, as a noun: "the time limit"."""

    seconds: float  # from now
    what: str


@dataclass(frozen=True)
class Platform:
    """What the agent has to know about a scheduler."""

    name: str
    hints: Mapping[str, str] = field(default_factory=dict)
    """Advice in the scheduler's terms and commands, by the kind of fault."""
    hub_patience: Mapping[str, float] = field(
        default_factory=lambda: {
            "stranger": 3.0,
            "shared": 3.0,
            "key": 3.0,
            "reset": 4.0,
            "silent": 10.0,
            "loopback": 10.0,
            "gone": 10.0,
            "filtered": 8.0,
            "rejected": 8.0,
        }
    )
    """Seconds to wait for the hub, by the kind of failure. A failure that is not listed has no limit. The hub
    of a thousand nodes may be silent for a moment, and one that was killed is started again."""
    name_delay: Optional[float] = None
    """Seconds until the name server knows a node that has just started; None: names are known beforehand."""
    has_device_plugins: bool = False
    """Whether a plugin hands out devices; it may count one of them several times."""

    place: str = ""
    """Where it shows messages about a job, in words for people; "": nowhere."""
    show: Optional[Callable[[dict[str, Any]], None]] = None
    """Shows a message from `hub.message` there. Raises `delivery.UndeliveredError`."""
    ended_by: Callable[[], str] = lambda: ""
    """Returns who ends the job that is getting SIGTERM now, as a noun: "scancel"; "" if that is not known."""

    ends_in: Callable[[], Optional[Ends]] = lambda: None
    """Returns when the scheduler ends the job, as far as it now knows; None if that is not known."""
    stops_single_nodes: bool = False
    """Whether it ends jobs by stopping nodes one by one, with a grace period that the job chooses."""

    lost_files: Callable[[str, float], str] = lambda _folder, _since: ""
    """Returns one sentence about files, written below a folder since then, that go with this node; "":
    none."""

    def hint(self, kind: str, otherwise: str) -> str:
        """Return the scheduler's own advice, or `otherwise`."""
        return self.hints.get(kind, otherwise)


def _ends_in() -> Optional[Ends]:
    at = os.environ.get(Env.ENDS_AT, "")
    return Ends(float(at) - time.time(), "the time limit") if at else None


PLAIN = Platform("", ends_in=_ends_in)
"""Machines without a scheduler."""
