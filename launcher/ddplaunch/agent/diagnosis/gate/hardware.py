"""Rules about hardware that must match: GPUs of one kind, one network that all nodes have. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones
from ddplaunch.agent.system import phrases

_ONE_KIND = (
    "use nodes of one kind; a machine that has lost a GPU says so in `dmesg`; if the difference is meant, "
    "`gate: {skip: [gpus]}`"
)
_ONE_NETWORK = (
    "mend or leave out the nodes without, as `ibstat` there shows them; or do without on all: `env: "
    '{NCCL_IB_DISABLE: "1"}`'
)
_ONE_INDEX = (
    "leave NCCL_IB_GID_INDEX out, and NCCL 2.21 or newer finds the right index on each node by itself"
)

_SLOWER = 10
"""Times, from where on a person should know: all wait for the slowest at every step."""
_SHOWN = 4


def differing(view: GateView) -> Iterator[Verdict]:
    """Yield what breaks or slows a job on such nodes. GPUs are judged only for a job that asks for some."""
    if view.plan.resources.gpus and view.checks("gpus"):
        hint = platforms.named(view.plan.platform).hint("hardware", _ONE_KIND)
        yield from _compared(view, "hardware-differs", "", "has", "have", _gpus(view), hint)
    if view.checks("rdma"):
        yield from _two_networks(view)
        rdma = _facts(view, "rdma")
        gids = {node: facts["gid"] for node, facts in rdma.items() if facts.get("used") and facts.get("gid")}
        by = "by NCCL_IB_GID_INDEX "
        yield from _compared(view, "rdma-unfit", by, "takes", "take", gids, _ONE_INDEX)


def _compared(
    view: GateView, code: str, before: str, one: str, many: str, values: dict[int, str], hint: str
) -> Iterator[Verdict]:
    right, odd = odd_ones(values) if values else ("", {})
    if odd:
        who = sorted(node for nodes in odd.values() for node in nodes)
        others = view.rest(values, who)
        parts = [f"{view.nodes(has)} {phrases.one_or(has, one, many)} {value}" for value, has in odd.items()]
        yield Verdict(
            code,
            f"{before}{'; '.join(parts)}, {others} {right}",
            "gate",
            nodes=who,
            facts=[f"{view.node(node)}: {value}" for node, value in sorted(values.items())],
            hint=hint,
        )


def _two_networks(view: GateView) -> Iterator[Verdict]:
    """Yield the verdict on nodes of which some have RDMA. Where it is asked for, those without say so."""
    known = _facts(view, "rdma")
    without = [node for node, facts in known.items() if not facts.get("active")]
    users = [node for node, facts in known.items() if facts.get("active") and facts.get("used")]
    if without and users and not view.plan.resources.rdma:
        lack, have = phrases.one_or(without, "has", "have"), phrases.one_or(users, "has", "have")
        yield Verdict(
            "hardware-differs",
            f"{view.nodes(without)} {lack} no RDMA port that is up, {view.nodes(users)} {have}: NCCL would "
            "take RDMA on one side and TCP on the other, and wait",
            "gate",
            nodes=without,
            facts=[
                f"{view.node(node)}: {', '.join(facts.get('devices', [])) or 'no RDMA device'}"
                for node, facts in known.items()
            ],
            hint=_ONE_NETWORK,
        )


def notes(view: GateView) -> list[str]:
    """Return what a person should know although the job can run."""
    found = mtus(view) if len(set(_links(view, 0).values())) > 1 else []
    speeds = _links(view, 1)
    slow = [node for node, speed in speeds.items() if speed * _SLOWER <= max(speeds.values())]
    if slow:
        slowest = ", ".join(f"{speeds[node] / 1000:g} Gbit/s on {view.node(node)}" for node in slow[:_SHOWN])
        found.append(
            f"the network is slower on some nodes: {slowest}, {max(speeds.values()) / 1000:g} elsewhere"
        )
    if not view.plan.resources.gpus:
        found += view.differing("the GPUs differ", _gpus(view))
    return found + _rails(view)


def _rails(view: GateView) -> list[str]:
    """Return a note on ports of RDMA that some nodes lack: NCCL takes the fewest channels, and is slower.

    In initTransportsRank of src/init.cc, from 2.18 to 2.30.
    """
    known = {
        n: facts for n, facts in _facts(view, "rdma").items() if facts.get("active") and facts.get("used")
    }
    values = {node: str(facts["active"]) for node, facts in known.items()}
    return view.differing("the number of RDMA ports that are up differs, and all go by the fewest", values)


def mtus(view: GateView) -> list[str]:
    """Return how large the nodes believe that packets may be, by the interface that each of them uses."""
    known = _links(view, 0)
    if not known:
        return []
    usual, odd = odd_ones(known)
    parts = [f"{mtu} on {view.nodes(who)}, " for mtu, who in odd.items()]
    return [f"the MTU is {''.join(parts)}{usual} on all {'other ' if odd else ''}nodes"]


def with_mtus(view: GateView, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, those on black holes with the MTUs of the nodes."""
    return [
        replace(each, facts=[*each.facts, *mtus(view)]) if each.code == "mtu-black-hole" else each
        for each in verdicts
    ]


def _links(view: GateView, what: int) -> dict[int, int]:
    """Return by node the MTU (0) or the Mbit/s (1) of its library's interface, else of its way to the hub."""
    found = {}
    for node, facts in _facts(view, "interfaces").items():
        own = view.check_ins[node]
        taken = [name for name, _ in facts.get("takes", [])]
        came = [name for name, at in own.facts.get("names", {}).get("interfaces", []) if at == own.address]
        values = facts.get("links", {}).get((taken + came + [""])[0], [])
        if values and values[what]:
            found[node] = values[what]
    return found


def _gpus(view: GateView) -> dict[int, str]:
    """Return by node the names of the GPUs that its ranks will use, with a number where some lack GPUs.

    More than are asked for are no matter, and of nodes that tell none nothing is known.
    """
    known = {node: facts for node, facts in _facts(view, "gpus").items() if facts.get("models")}
    names = {node: " and ".join(facts["models"]) for node, facts in known.items()}
    if not all(facts["count"] for facts in known.values()):
        return names
    enough = view.plan.resources.gpus or view.plan.nproc_per_node
    counts = {node: min(facts["count"], enough or facts["count"]) for node, facts in known.items()}
    equal = len(set(counts.values())) < 2
    return names if equal else {node: f"{counts[node]} x {name}" for node, name in names.items()}


def _facts(view: GateView, check: str) -> dict[int, dict[str, Any]]:
    known = {node: check_in.facts.get(check) for node, check_in in sorted(view.check_ins.items())}
    return {node: facts for node, facts in known.items() if facts}
