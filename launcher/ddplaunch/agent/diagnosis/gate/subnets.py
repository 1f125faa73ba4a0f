"""Rules about subnets: whether all nodes have the same prefix for their network. Pure.

Several subnets are as good as one, if a router joins them. Subnets that overlap and are not of one size are a
mistake: a node looks on the wire for a peer behind a router, or by a router for one that is on the wire.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Union

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones

_WAYS = frozenset({"host-unreachable", "network-one-way", "port-filtered"})
"""How it shows when of two nodes one does not know the way to the other."""
_SHOWN = 4

_Own = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]


def notes(view: GateView) -> list[str]:
    """Return a note on subnets that do not fit one another, whether or not that does harm today."""
    own = _own(view)
    return [_note(view, own, group) for group in _overlapping(own)]


def with_subnets(view: GateView, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, those on closed paths with the nodes' subnets where these are the reason."""
    own = _own(view)
    closed = [(r.node, r.peer) for r in view.mesh if r.outcome in ("timeout", "unreachable")]
    closed = [(a, b) for a, b in closed if a in own and b in own and own[a].version == own[b].version]
    return [_explained(view, own, closed, each) if each.code in _WAYS else each for each in verdicts]


def _explained(
    view: GateView, own: dict[int, _Own], closed: Collection[tuple[int, int]], verdict: Verdict
) -> Verdict:
    paths = [(a, b) for a, b in closed if {a, b} & set(verdict.nodes)]
    lame = {
        n for a, b in paths if (own[b].ip in own[a].network) != (own[a].ip in own[b].network) for n in (a, b)
    }
    for group in _overlapping(own):
        usual, odd = _sizes(own, group)
        who = sorted(lame & {node for nodes in odd.values() for node in nodes})
        if who:
            return replace(
                verdict.continued(f"; {_note(view, own, group)}"),
                nodes=who,
                hint=_hint(view, who[0], own[who[0]], usual),
            )
    if any(own[a].network != own[b].network for a, b in paths):
        ours = {node: str(own[node].network) for node in sorted({node for path in paths for node in path})}
        shown = [f"{view.node(node)} in {network}" for node, network in [*ours.items()][:_SHOWN]]
        return replace(verdict, facts=[*verdict.facts, f"a router has to join them: {', '.join(shown)}"])
    return verdict


def _own(view: GateView) -> dict[int, _Own]:
    """Return by node its address and prefix as the gate knows them, but for nodes behind a translation."""
    found = {}
    for node, check_in in sorted(view.check_ins.items()):
        prefixes = check_in.facts.get("interfaces", {}).get("prefixes", {})
        for address in sorted(view.met_at(node) & set(prefixes)):
            found[node] = ipaddress.ip_interface(f"{address}/{prefixes[address]}")
    return found


def _overlapping(own: dict[int, _Own]) -> Iterator[list[int]]:
    """Groups of nodes whose networks lie in one another, and are not of one size."""
    # DHCP gives an IPv6 address without its network, which routers announce by themselves.
    known = [node for node, each in own.items() if (each.version, each.network.prefixlen) != (6, 128)]
    known.sort(key=lambda node: (own[node].version, own[node].network))
    group: list[int] = []
    for node in [*known, None]:
        if node is not None and group and _holds(own[group[0]], own[node]):
            group.append(node)
            continue
        if len({own[each].network.prefixlen for each in group}) > 1:
            yield sorted(group)
        group = [] if node is None else [node]


def _holds(one: _Own, other: _Own) -> bool:
    """Networks come in the order of their first address, of equal ones the larger first."""
    return one.version == other.version and other.network.network_address in one.network


def _sizes(own: dict[int, _Own], group: list[int]) -> tuple[int, dict[int, list[int]]]:
    return odd_ones({node: own[node].network.prefixlen for node in group})


def _note(view: GateView, own: dict[int, _Own], group: list[int]) -> str:
    usual, _ = _sizes(own, group)
    networks = {node: own[node].network for node in group}
    shown = {node: f"/{usual}" if each.prefixlen == usual else str(each) for node, each in networks.items()}
    return view.differing("the subnets overlap", shown)[0]  # in a group they are not all of one size


def _hint(view: GateView, node: int, own: _Own, usual: int) -> str:
    at = view.check_ins[node].facts.get("names", {}).get("interfaces", [])
    name = next((name for name, address in at if address == str(own.ip)), "eth0")
    change = f"ip address add {own.ip}/{usual} dev {name} && ip address del {own} dev {name}"
    return (
        f"on {view.node(node)}: `{change}`, and likewise in that machine's configuration, or its DHCP server"
    )
