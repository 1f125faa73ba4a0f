"""The master port on node 0: free, outside of where the kernel hands out ports, held until the release."""

from __future__ import annotations

import errno
import os
from typing import Optional

from ddplaunch.agent.checks import ports
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult


def check(context: Context) -> CheckResult:
    """Leaves the listening socket in `context.master`, so that the mesh can prove the way to it."""
    if context.node != 0:
        return passed("port", "node 0 listens")
    port = context.plan.master_port
    if port is None:
        return _choose(context)
    try:
        context.master = ports.listen(None, port)
    except OSError as error:
        return _cannot_listen(port, error)
    low, high = ports.ephemeral_range()
    if low <= port <= high:
        return unknown(
            "port",
            f"{port} is free now, but lies where the kernel hands out ports ({low}-{high})",
            hint="any outgoing connection may take it; choose one outside, or leave rendezvous.port out",
        )
    return passed("port", f"{port} is free")


def _choose(context: Context) -> CheckResult:
    try:
        context.master = ports.first_free(None, context.plan.job, context.attempt, context.key, "master")
    except OSError as error:
        hint = "`ss -ltn` on node 0 shows who listens; free some, or name one: `rendezvous.port`"
        return failed("port", "port-in-use", f"no free port: {error.strerror}", "a free port", hint)
    return passed("port", f"{ports.number(context.master)} is free, chosen here")


def _cannot_listen(port: int, error: OSError) -> CheckResult:
    if error.errno == errno.EADDRINUSE:
        return in_use("port", port)
    return unknown("port", f"cannot listen on {port}: {error.strerror}", hint="choose another port")


def in_use(check: str, port: int) -> CheckResult:
    """The failure that names who holds `port` on this node."""
    holder = ports.holder(port)
    who = holder.text if holder else "a process that cannot be seen from here"
    return failed(
        check,
        "port-in-use",
        f"port {port} is held by {who}",
        wanted="a free port",
        hint=_remedy(holder),
        **({"holder": holder.facts()} if holder else {}),
    )


def _remedy(holder: Optional[ports.Holder]) -> str:
    if holder is None or holder.pid is None:
        return "choose another port, or leave it out: then a free one is found"
    ours = f"`kill {holder.pid}` if it is a leftover, else " if os.getuid() in (0, holder.user_id) else ""
    return f"{ours}choose another port, or leave it out: then a free one is found"
