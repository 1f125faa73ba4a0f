"""Check: the node's clock. Only the hub can compare it with the others."""

from __future__ import annotations

import time

from ddplaunch.agent.checks.context import Context, passed
from ddplaunch.agent.contract import CheckResult


def check(context: Context) -> CheckResult:  # noqa: ARG001 - every check is called alike
    """PASS; the hub compares the time of the check-in."""
    return passed("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
