"""Differences between a local job, Slurm and Kubernetes: names, machines, logs, termination messages, hints.

This package must not judge, and connects to no hub. No other package knows a scheduler, which a test checks.
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
