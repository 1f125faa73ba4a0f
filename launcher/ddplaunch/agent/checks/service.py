"""Whether the Service that names the pods of the job does so: what the name server says of this very pod.

It must have a record although it is not ready yet, or no gate ever finds another. Only node 0's matters, for
by its name the others find the hub; but what a node finds of its own says why it does not find node 0's.
"""

from __future__ import annotations

import time
from typing import Any

from ddplaunch.agent import name_server
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.verdicts import pods, words

PATIENCE = 3.0
"""Seconds in which the record of a new pod is usually there."""
_TRY = 2.0
_PAUSE = 0.25


def check(context: Context, patience: float = PATIENCE, since: float = 0.0) -> CheckResult:
    """FAIL only on node 0. `since`: time.monotonic() when it was asked for first, if that was before."""
    if not words.are_pods(context.plan.names):
        return passed("service", "no Service of Kubernetes names the nodes")
    name = context.plan.names[context.node]
    started = time.monotonic()
    while True:
        answer = name_server.ask(name, time.monotonic() + _TRY)
        if answer.status == name_server.FOUND or time.monotonic() + _PAUSE > started + patience:
            break
        time.sleep(_PAUSE)
    seconds = time.monotonic() - (since or started)
    facts: dict[str, Any] = {"status": answer.status, "said": answer.said, "seconds": seconds}
    if answer.status == name_server.FOUND:
        return passed("service", f"{name}: {answer.said}", **facts)
    observed = f"{name}: {answer.said}, asked for {seconds:.0f} s"
    if context.node != 0:
        return unknown("service", observed, **facts)
    unanswered = answer.status in (name_server.SILENT, name_server.FAILING)
    return failed(
        "service",
        "dns-unanswered" if unanswered else "dns-not-found",
        observed,
        wanted="a record of this pod, by which the others find it",
        hint=pods.HINTS["unanswered" if unanswered else "not-found"],
        **facts,
    )
