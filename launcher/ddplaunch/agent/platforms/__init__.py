"""Knows what differs between a local job, Slurm and Kubernetes: names, machines, logs, last words, hints.

It must not judge, and speaks with no hub. No other room knows a scheduler: a test reads them for its words.
"""

from __future__ import annotations

from ddplaunch.agent.platforms.kubernetes import KUBERNETES
from ddplaunch.agent.platforms.platform import PLAIN, Platform
from ddplaunch.agent.platforms.slurm import SLURM

__all__ = ["KUBERNETES", "PLAIN", "SLURM", "Platform", "named"]

_PLATFORMS = {each.name: each for each in (PLAIN, SLURM, KUBERNETES)}


def named(name: str) -> Platform:
    """Return the platform of a plan."""
    return _PLATFORMS.get(name, PLAIN)
