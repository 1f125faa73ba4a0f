"""The rules of the gate in their order, over the check-ins of all nodes and the paths between them.

A rule says nothing where facts are missing. In which order their verdicts are told is `order`'s to say.

`complain`: see `guard`. A mistake of ours must keep no job from its start, and no other rule from its word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Callable, TypeVar

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import CheckIn, CheckResult, Status, Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.gate import (
    environment,
    failed_paths,
    hardware,
    hub_unreached,
    interfaces,
    ip_families,
    node_names,
    subnets,
)
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones
from ddplaunch.agent.diagnosis.gate.ranking import Kind, mesh_alone, order
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.system import phrases

CLOCK_TOLERANCE = 15.0
"""Seconds. torchrun's c10d rendezvous drops a node whose last heartbeat, by the other's clock, is older."""

_WARNINGS = 8
_ASK_SCHEDULER = (
    "ask the scheduler for it: is it pending, pulling its image, or down? `gate.timeout` in the job file "
    "says how long the others wait"
)

T = TypeVar("T")


def judge(view: GateView, complain: Complain = None) -> list[Verdict]:
    """Return all verdicts against the job, first things first."""
    (alone,) = _told(lambda view: [mesh_alone(view)], view, complain) or [view]
    found = [(kind, _told(rule, alone, complain)) for kind, rule in RULES]
    every = [verdict for _, verdicts in found for verdict in verdicts]
    return _told(lambda view: order(view, found), alone, complain) or every


def notes(view: GateView, complain: Complain = None) -> list[str]:
    """Return what a person should know although the job can run."""
    return [note for rule in NOTES for note in _told(rule, view, complain)]


def _told(rule: Callable[[GateView], Iterable[T]], view: GateView, complain: Complain) -> list[T]:
    return rule_runner.told(rule, view, complain, "gate")


def _clocks(view: GateView) -> list[str]:
    skews = _skews(view.check_ins)
    if judge_clocks(view) or all(abs(skew) <= CLOCK_TOLERANCE for skew in skews.values()):
        return []
    said = ", ".join(f"{view.node(n)} {s:+.0f} s" for n, s in skews.items())
    return [f"the nodes' clocks differ: {said}"]


def _warnings(view: GateView) -> list[str]:
    """Return what a check has a code for and no job ends by."""
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


def duplicate_rank(view: GateView) -> Iterator[Verdict]:
    """Two processes say that they are the same node."""
    for stray in view.strays:
        first = view.check_ins.get(stray.node)
        if first is not None:
            yield Verdict(
                "rank-duplicate",
                f"two agents claim to be {view.node(stray.node)}: pid {first.pid} on {first.host} and "
                f"pid {stray.pid} on {stray.host}",
                "gate",
                nodes=[stray.node],
                facts=[f"checked in first: {first.host} at {first.address}", f"second: {stray.host}"],
                hint="each node needs its own index from 0; a node's index must not be given to two machines",
            )


def differing_sizes(view: GateView) -> Iterator[Verdict]:
    """Nodes were told different numbers of nodes, or of ranks."""
    everybody = [*view.check_ins.values(), *(s for s in view.strays if s.node not in view.check_ins)]
    sizes = {c.node: (c.nodes, c.nproc_per_node) for c in everybody}
    if not sizes:
        return
    right, odd = odd_ones(sizes)
    for size, who in odd.items():
        ranks = f" x {size[1]}" if size[1] != right[1] else ""
        right_ranks = f" x {right[1]}" if ranks else ""
        yield Verdict(
            "world-size-differs",
            f"{view.nodes(who)} {phrases.one_or(who, 'was', 'were')} started for {_count(size[0])}{ranks}, "
            f"{view.rest(sizes, [n for who in odd.values() for n in who])} "
            f"for {_count(right[0])}{right_ranks}",
            "gate",
            nodes=who,
            facts=[
                f"{view.node(node)}: {n} nodes x {per or '?'}" for node, (n, per) in sorted(sizes.items())
            ],
            hint="start all nodes from the same job file",
        )


def failed_checks(view: GateView) -> Iterator[Verdict]:
    """Yield what nodes found at home, one verdict for all nodes that found the same kind of thing."""
    failures: dict[str, list[tuple[int, CheckResult]]] = {}
    for node, check_in in sorted(view.check_ins.items()):
        for result in check_in.checks:
            # By node 0's name the others find it; when all have, it is no matter any more.
            needless = result.check == "service" and len(view.check_ins) == view.plan.nodes
            if result.status == Status.FAIL and not needless:
                failures.setdefault(result.code, []).append((node, result))
    for code, found in failures.items():
        _, first = found[0]
        alike = [node for node, result in found if result.observed == first.observed]
        wanted = f"; wanted: {first.wanted}" if first.wanted else ""
        yield Verdict(
            code,
            f"{view.nodes(alike)}: {first.observed}{wanted}",
            "gate",
            nodes=[node for node, _ in found],
            facts=_details(view, found, first),
            hint=first.hint,
        )


def differing_versions(view: GateView) -> Iterator[Verdict]:
    """Python, torch, CUDA or NCCL are not the same everywhere."""
    if not view.checks("versions"):
        return
    known = {n: c.facts["versions"] for n, c in view.check_ins.items() if c.facts.get("versions")}
    short = {node: tuple(_version(facts).items()) for node, facts in known.items()}
    right, odd = odd_ones(short) if short else ((), {})
    if odd:
        who = sorted(node for group in odd.values() for node in group)
        first = next(iter(odd))
        differing = {key for value in odd for key, text in value if dict(right).get(key) != text}
        differing |= {key for key, text in right if any(dict(value).get(key) != text for value in odd)}
        yield Verdict(
            "version-differs",
            f"{view.nodes(odd[first])} {phrases.one_or(odd[first], 'has', 'have')} "
            f"{_spelt(dict(first), differing)}, {view.rest(short, who)} {_spelt(dict(right), differing)}",
            "gate",
            nodes=who,
            facts=[
                f"{view.node(node)}: {_spelt(dict(value), None)}" for node, value in sorted(short.items())
            ],
            hint="use one image, or one environment on a shared file system, for all nodes; "
            "`python:` in the job file names it",
        )


def judge_clocks(view: GateView) -> list[Verdict]:
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


def unreached_hub(view: GateView) -> Iterator[Verdict]:
    """Nodes that say themselves why they do not reach the hub. When nobody does, the fault is where it is."""
    alone = any(each.code == "node-missing" for each in view.unreached.values())  # it ended by itself
    everybody = not alone and len(view.unreached) > 1 and len(view.unreached) == view.plan.nodes - 1
    for who, verdict in hub_unreached.alike(view.unreached):
        yield replace(verdict, nodes=[0]) if everybody and len(who) == len(view.unreached) else verdict


def missing_nodes(view: GateView) -> Iterator[Verdict]:
    """Nodes that never came, or came and went."""
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
    if view.missing and not unnamed:  # else it is told already why nobody finds node 0
        never = [node for node in view.missing if node not in view.vanished]
        if never:
            said = f"{view.nodes(never)} never came: waited {view.waited:.0f} s"
        elif set(view.missing) <= set(view.stopped):
            were = phrases.one_or(view.missing, "was", "were")
            said = f"{view.nodes(view.missing)} {were} told to stop, and the other nodes were not"
        else:
            said = f"{view.nodes(view.missing)} checked in and then went away"
        others = [node for node in view.check_ins if node not in view.missing]
        here = view.nodes(others) if others else "nobody"
        yield Verdict(
            "node-missing",
            f"{said}; {here} {'is' if len(others) < 2 else 'are'} here",
            "gate",
            nodes=view.missing,
            facts=[
                f"{view.node(node)} had checked in and "
                f"{'was told to stop' if node in view.stopped else 'went away'}"
                for node in view.vanished
            ]
            + [f"the hub refused {peer}, which does not know the job's key" for peer in view.refused],
            hint=platforms.named(view.plan.platform).hint("missing", _ASK_SCHEDULER),
        )


RULES: tuple[tuple[Kind, Callable[[GateView], Iterable[Verdict]]], ...] = (
    (Kind.WHO, duplicate_rank),
    (Kind.WHO, differing_sizes),
    (Kind.NAME, node_names.master_is_loopback),
    (Kind.NAME, node_names.master_is_not_node_zero),
    (Kind.HERE, unreached_hub),
    (Kind.HERE, missing_nodes),
    (Kind.TOLD, differing_versions),
    (Kind.TOLD, environment.differing),
    (Kind.TOLD, interfaces.missing),
    (Kind.HOME, failed_checks),
    (Kind.HOME, judge_clocks),
    (Kind.HOME, hardware.differing),
    (Kind.WAY, failed_paths.failed_paths),
    (Kind.WAY, interfaces.wrong),
    (Kind.NAME, ip_families.silent_names),
    (Kind.WAY, ip_families.apart),
    (Kind.WAY, ip_families.chosen),
)
"""What each speaks of. Their own order is nobody's concern."""

NOTES: tuple[Callable[[GateView], list[str]], ...] = (
    _clocks,
    environment.notes,
    node_names.notes,
    ip_families.notes,
    interfaces.notes,
    hardware.notes,
    subnets.notes,
    _warnings,
    lambda view: failed_paths.notes(view.mesh, view.plan.names),
)


def _of_zero(view: GateView) -> list[CheckResult]:
    return view.check_ins[0].checks if 0 in view.check_ins else []


def _details(view: GateView, found: list[tuple[int, CheckResult]], first: CheckResult) -> list[str]:
    """Return what the sentence does not say: other nodes' observations, and where things were looked for."""
    details = [
        f"{view.node(node)}: {result.observed}" for node, result in found if result.observed != first.observed
    ]
    if "looked_in" in first.facts:
        details.append(f"looked for in {first.facts['looked_in']}")
    return details


def _version(facts: dict[str, str]) -> dict[str, str]:
    """Return what must be equal; of Python the minor version: patch releases read each other's pickles."""
    found = dict(facts)
    found["python"] = ".".join(found.get("python", "").split(".")[:2])
    return found


def _spelt(facts: dict[str, str], only: Any) -> str:
    names = {"python": "Python", "torch": "torch", "cuda": "CUDA", "nccl": "NCCL"}
    picked = [key for key in names if only is None or key in only]
    return " / ".join(
        f"{names[key]} {facts[key]}" if facts.get(key) else f"no {names[key]}" for key in picked
    )


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


def _count(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
