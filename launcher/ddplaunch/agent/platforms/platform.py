"""Describes what differs between schedulers: one record each.

Whoever makes a plan says in it which scheduler runs the job. An unknown name counts as plain machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Platform:
    """A scheduler, as far as the agent has to know it."""

    name: str
    hints: Mapping[str, str] = field(default_factory=dict)
    """Advice in the scheduler's terms and commands, by what went wrong. Rules have their own besides."""
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
        }
    )
    """Seconds to wait for the hub, by why it is not reached; without limit for what is not listed. A hub that
    serves a thousand nodes may be silent for a moment, and one that was killed is started again."""
    name_delay: Optional[float] = None
    """Seconds until the name server knows a node that has just started; None: names are known beforehand."""
    has_device_plugins: bool = False
    """Whether a plugin hands out devices, which may count one of them several times."""

    def hint(self, kind: str, otherwise: str) -> str:
        """Return the scheduler's own advice, or `otherwise`."""
        return self.hints.get(kind, otherwise)


PLAIN = Platform("")
"""Machines of which nothing is known."""
