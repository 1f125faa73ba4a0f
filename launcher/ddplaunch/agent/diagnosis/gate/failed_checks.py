"""The rule about checks: what each node found out about itself, and no other node needs to know. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ddplaunch.agent.contract import CheckResult, Status, Verdict
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.text.saying import say

_WARNINGS = 8


def failed_checks(view: GateView) -> Iterator[Verdict]:
    """Yield the failures of the nodes' own checks, one verdict for each code."""
    failures: dict[str, list[tuple[int, CheckResult]]] = {}
    for node, check_in in sorted(view.check_ins.items()):
        for result in check_in.checks:
            # By node 0's name the others find it; when all have, it is no matter any more.
            needless = result.check == "service" and len(view.check_ins) == view.plan.nodes
            if result.status == Status.FAIL and not needless:
                failures.setdefault(result.code, []).append((node, result))
    for code, found in failures.items():
        _, first = found[0]
        same = [node for node, result in found if result.observed == first.observed]
        wanted = f"; wanted: {first.wanted}" if first.wanted else ""
        yield Verdict.of(
            code,
            say(view.nodes(same), f": {first.observed}{wanted}"),
            "gate",
            nodes=[node for node, _ in found],
            facts=_details(view, found, first),
            hint=first.hint,
        )


def _details(view: GateView, found: list[tuple[int, CheckResult]], first: CheckResult) -> list[str]:
    """Return what the sentence does not say: other nodes' observations, and where things were looked for."""
    details = [
        f"{view.node(node)}: {result.observed}" for node, result in found if result.observed != first.observed
    ]
    if "looked_in" in first.facts:
        details.append(f"looked for in {first.facts['looked_in']}")
    return details


def notes(view: GateView) -> list[str]:
    """Return notes on checks that found what has a code, and ends no job."""
    found = [
        f"{result.code}: {view.node(node)}: {result.observed}; {result.hint}"
        for node, check_in in sorted(view.check_ins.items())
        for result in check_in.checks
        if result.status == Status.UNKNOWN and result.code and view.checks(result.check)
    ]
    return [
        *found[:_WARNINGS],
        *([f"{len(found) - _WARNINGS} more of the kind"] if found[_WARNINGS:] else []),
    ]
