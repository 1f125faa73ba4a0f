"""Check: the master port on node 0 is free and not ephemeral. It is held until the release."""

from __future__ import annotations

import errno
import os
from typing import Any, Optional

from ddplaunch.agent.checks.context import Context, failed, noted, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.platforms.holder import Holder, holder_of_port, job_of
from ddplaunch.agent.system import ports, torchrun
from ddplaunch.agent.system.resolve import is_loopback
from ddplaunch.agent.transport import strangers

_ENDING = 30.0
"""Seconds for processes of an earlier attempt to end: by then they have been killed."""
_PASSING = 3.0
"""Seconds for other processes to end. This is short, so that the failure is reported soon."""
_GREETING_SECONDS = 1.0
_ANOTHER = "choose another port, or leave {key} out: then {then}"
_FREE, _OWN = "a free one is found", "each job finds its own"


def check_port(context: Context) -> CheckResult:
    """FAIL if the port is held. Leaves the socket in `context.master`, so that the mesh can try its path."""
    if context.node != 0:
        return passed("port", "node 0 listens")
    port = context.plan.master_port
    if port is None:
        chosen = _choose(context)
        return (context.master and _taken_from_torchrun(context)) or chosen
    try:
        context.master = ports.listen(None, port)
    except OSError as error:
        return _cannot_listen(context, port, error)
    low, high = ports.ephemeral_range()
    if low <= port <= high and not ports.is_reserved(port):
        return unknown(
            "port",
            f"{port} is free now, but lies where the kernel hands out ports ({low}-{high})",
            hint="any outgoing connection may take it; choose one outside, leave rendezvous.port out, or run "
            f"`sysctl net.ipv4.ip_local_reserved_ports={port}` on node 0",
        )
    return passed("port", f"{port} is free")


def _taken_from_torchrun(context: Context) -> Optional[CheckResult]:
    """Return what holds the port that a torchrun on this machine alone is told to use; None: nothing does.

    It is no failure: whoever has it may be about to go, and torchrun is the user's own.
    """
    plan = context.plan
    found = torchrun.read_torchrun(0, plan.command, {**context.environment, **plan.env})
    if plan.nodes > 1 or found is None or not found.endpoint:
        return None
    host, number = torchrun.split_endpoint(found.endpoint)
    if not number.isdecimal() or not (host == "localhost" or is_loopback(host)):
        return None
    holder = holder_of_port(int(number))
    if holder is None:
        return None
    if found.backend == torchrun.STATIC:
        then = "torchrun will not get it"
    else:
        then = "torchrun will look there for its store"
    hint = f"{_kill(holder)}give torchrun another port, or none: then it finds a free one"
    observed = f"port {number} is held by {holder.text}: {then}"
    return noted("port", "port-in-use", observed, hint, holder=holder.facts())


def _choose(context: Context) -> CheckResult:
    try:
        context.master = ports.first_free(None, context.plan.job, context.attempt, context.key, "master")
    except OSError as error:
        hint = "`ss -ltn` on node 0 shows who listens; free some, or name one: `rendezvous.port`"
        return failed("port", "port-in-use", f"no free port: {error.strerror}", "a free port", hint)
    return passed("port", f"{ports.number(context.master)} is free, chosen here")


def _cannot_listen(context: Context, port: int, error: OSError) -> CheckResult:
    if error.errno == errno.EADDRINUSE:
        holder = holder_of_port(port)
        ours = _is_ours(context, holder)
        return in_use("port", port, holder, ours, patience=_ENDING if ours else _PASSING)
    return unknown("port", f"cannot listen on {port}: {error.strerror}", hint="choose another port")


def _is_ours(context: Context, holder: Optional[Holder]) -> bool:
    """Whether an earlier attempt of this job, or another step of it, holds the port."""
    ours = (f"ddplaunch job {context.plan.job}", job_of(context.environment))
    return holder is not None and holder.job != "" and holder.job in ours


def in_use(
    check: str,
    port: int,
    holder: Optional[Holder],
    ours: bool = False,
    patience: Optional[float] = None,
    key: str = "it",
) -> CheckResult:
    """Return the failure, with the holder of `port` on this node. `ours`: the holder belongs to this job.

    If it is another job's rendezvous, ranks would train with that job. `key`: the job file's key that has the
    port; "it" if the sentence has already named it.
    """
    holder_text = holder.text if holder else "a process that cannot be seen from here"
    facts: dict[str, Any] = {"holder": holder.facts()} if holder else {}
    held = f"port {port} is held by {holder_text}"
    greeting = b"" if ours else strangers.ask("127.0.0.1", port, _GREETING_SECONDS)
    if strangers.is_job(greeting):
        met = f"{held}: {strangers.describe(greeting)}"
        hint = _ANOTHER.format(key=key, then=_OWN)
        return failed(check, "store-shared", met, "a port of this job's own", hint, patience, **facts)
    hint = _kill(holder) + _ANOTHER.format(key=key, then=_FREE)
    return failed(check, "port-in-use", held, "a free port", hint, patience, **facts)


def _kill(holder: Optional[Holder]) -> str:
    may = holder is not None and holder.pid is not None and os.getuid() in (0, holder.user_id)
    return f"`kill {holder.pid}` if it is a leftover, else " if holder and may else ""
