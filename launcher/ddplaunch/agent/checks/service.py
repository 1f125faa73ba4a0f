"""Check: where a Service names the nodes, the name server knows this one, by its own answer.

A node must have a record before it is ready, or no gate finds the hub. Only node 0's record matters, for its
name leads to the hub; but a node's own record shows why it does not find node 0's.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from ddplaunch.agent import platforms
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.platforms import dns
from ddplaunch.agent.system.background import Task

PATIENCE = 3.0
"""Seconds in which the record of a new node usually appears."""
_TRY = 2.0
_PAUSE = 0.25
SLOW = 1.0
"""Seconds of a reverse lookup that delay torch's start."""
_LONGEST = 3.0


def check(context: Context) -> CheckResult:
    """FAIL, on node 0 only, without a record of this node."""
    platform = platforms.named(context.plan.platform)
    if platform.name_delay is None or not context.plan.names:
        return passed("service", "no Service names the nodes")
    name = context.plan.names[context.node]
    deadline = time.monotonic() + (0.0 if context.again else PATIENCE)
    while True:
        answer = dns.ask(name, time.monotonic() + _TRY)
        if answer.status == dns.RESOLVED or time.monotonic() + _PAUSE > deadline:
            break
        time.sleep(_PAUSE)
    seconds = time.monotonic() - context.started
    facts: dict[str, Any] = {"status": answer.status, "said": answer.text, "seconds": seconds}
    if answer.status == dns.RESOLVED:
        seconds = _reverse(answer.addresses[0])
        if seconds < SLOW:
            return passed("service", f"{name}: {answer.text}", **facts)
        observed = f"{name}: {answer.text}; to find the name of that address took {seconds:.1f} s"
        hint = "torch asks for names of addresses when it logs: see to the reverse zones of the name server"
        return unknown("service", observed, hint, **facts)
    observed = f"{name}: {answer.text}, asked for {seconds:.0f} s"
    if context.node != 0:
        return unknown("service", observed, **facts)
    unanswered = answer.status in (dns.SILENT, dns.FAILING)
    return failed(
        "service",
        "dns-unanswered" if unanswered else "dns-not-found",
        observed,
        wanted="a record of this node, by which the others find it",
        hint=platform.hint("unanswered" if unanswered else "not-found", ""),
        patience=0.0,
        **facts,
    )


def _reverse(address: str) -> float:
    """Return the seconds of a reverse lookup, at most _LONGEST."""
    started = time.monotonic()
    Task(_name_of, address).join(_LONGEST)
    return time.monotonic() - started


def _name_of(address: str) -> None:
    with contextlib.suppress(OSError):
        socket.getnameinfo((address, 0), 0)
