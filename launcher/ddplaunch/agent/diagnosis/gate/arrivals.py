"""Rules about nodes that do not come: they do not reach the hub, never came, or went away. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import CheckResult, Status, Verdict
from ddplaunch.agent.diagnosis.gate import failed_paths, hub_unreached
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.system import phrases

_ASK_SCHEDULER = "ask the scheduler for it: is it pending, pulling its image, or down?"


def unreached_hub(view: GateView) -> Iterator[Verdict]:
    """Yield the reasons of nodes that do not reach the hub. Where no node reaches it, node 0 is at fault."""
    by_itself = ("node-missing", "container-unusable")
    alone = any(each.code in by_itself for each in view.unreached.values())
    all_others = not alone and len(view.unreached) > 1 and len(view.unreached) == view.plan.nodes - 1
    for who, verdict in hub_unreached.by_cause(view.unreached):
        yield replace(verdict, nodes=[0]) if all_others and len(who) == len(view.unreached) else verdict


def missing_nodes(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on nodes that never came, or came and went away."""
    if view.stalled:
        yield Verdict(
            "mtu-black-hole",
            f"{view.nodes(view.stalled)} -> node 0: small messages pass, a check-in of a few kB never "
            "arrives",
            "gate",
            nodes=view.stalled,
            facts=["packets larger than the path's MTU vanish, and no ICMP message comes back to say so"],
            hint=failed_paths.MTU_HINT,
        )
    unnamed = any(each.check == "service" and each.status == Status.FAIL for each in _of_zero(view))
    if view.missing and not unnamed:  # else another verdict says why no node finds node 0
        never = [node for node in view.missing if node not in view.vanished]
        if never:
            what = f"{view.nodes(never)} never came: waited {view.waited:.0f} s"
        elif set(view.missing) <= set(view.stopped):
            were = phrases.one_or(view.missing, "was", "were")
            what = f"{view.nodes(view.missing)} {were} told to stop, and the other nodes were not"
        else:
            what = f"{view.nodes(view.missing)} checked in and then went away"
        others = [node for node in view.check_ins if node not in view.missing]
        here = view.nodes(others) if others else "nobody"
        hint = platforms.named(view.plan.platform).hint("missing", _ASK_SCHEDULER)
        patience = "`--gate-timeout`" if view.plan.gate.joined else "`gate.timeout` in the job file"
        yield Verdict(
            "node-missing",
            f"{what}; {here} {'is' if len(others) < 2 else 'are'} here",
            "gate",
            nodes=view.missing,
            facts=[
                f"{view.node(node)} had checked in and "
                f"{'was told to stop' if node in view.stopped else 'went away'}"
                for node in view.vanished
            ]
            + [f"the hub refused {peer}, which does not know the job's key" for peer in view.refused],
            hint=f"{hint} {patience} says how long the others wait",
        )


def _of_zero(view: GateView) -> list[CheckResult]:
    return view.check_ins[0].checks if 0 in view.check_ins else []
