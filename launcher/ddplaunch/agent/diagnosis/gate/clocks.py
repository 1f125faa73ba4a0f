"""The rule about the nodes' clocks. Pure."""

from __future__ import annotations

from ddplaunch.agent.contract import CheckIn, Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView

CLOCK_TOLERANCE = 15.0
"""Seconds. torchrun's c10d rendezvous drops a node whose last heartbeat, by the other's clock, is older."""
"""Seconds. torchrun's c10d rendezvous drops a node whose last heartbeat, by the other's clock, is older."""


def differing(view: GateView) -> list[Verdict]:
    """Return the verdict on clocks that differ; only a c10d rendezvous compares them."""
    if not view.checks("clock") or not any("c10d" in word for word in view.plan.launch):
        return []
    skews = _skews(view.check_ins)
    right = max(sorted(skews), key=lambda n: _close(skews, n), default=0)
    wrong = [n for n in sorted(skews) if abs(skews[n] - skews[right]) > CLOCK_TOLERANCE]
    if not wrong:
        return []
    off = skews[wrong[0]] - skews[right]
    return [
        Verdict(
            "clock-skew",
            f"{view.node(wrong[0])}'s clock is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}; "
            f"torchrun's c10d rendezvous drops nodes beyond {CLOCK_TOLERANCE:.0f} s",
            "gate",
            nodes=wrong,
            facts=[
                f"{view.node(node)}: {skew:+.1f} s against node 0" for node, skew in sorted(skews.items())
            ],
            hint="`chronyc tracking` or `timedatectl` on that node; start its time service",
        )
    ]


def notes(view: GateView) -> list[str]:
    """Return a note where clocks differ, and no rendezvous compares them."""
    skews = _skews(view.check_ins)
    if differing(view) or all(abs(skew) <= CLOCK_TOLERANCE for skew in skews.values()):
        return []
    shown = ", ".join(f"{view.node(n)} {s:+.0f} s" for n, s in skews.items())
    return [f"the nodes' clocks differ: {shown}"]


def _skews(check_ins: dict[int, CheckIn]) -> dict[int, float]:
    """Seconds by which each node's clock is ahead of the hub's, with the doubt taken off."""
    skews = {}
    for node, check_in in sorted(check_ins.items()):
        facts = check_in.facts.get("hub", {})
        if "received" in facts:
            skew = check_in.at - facts["received"]
            recheck = facts.get("round_trip", 0.0)
            skews[node] = 0.0 if abs(skew) <= recheck else skew - recheck if skew > 0 else skew + recheck
    return skews


def _close(skews: dict[int, float], node: int) -> int:
    return sum(abs(other - skews[node]) <= CLOCK_TOLERANCE for other in skews.values())
