"""Rules about failed paths between nodes: one verdict for each partition that explains them."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Optional, Union

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import MeshResult, Verdict
from ddplaunch.agent.diagnosis.gate import differences, names, paths
from ddplaunch.agent.diagnosis.gate.partitions import Partition, Path, describe
from ddplaunch.agent.diagnosis.gate.view import GateView, odd_ones
from ddplaunch.agent.platforms import PLAIN, Platform
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.quantities import spans
from ddplaunch.agent.text.saying import Sayable, Subject, Text, say

MTU_HINT = (
    "compare `ip link` on both nodes and test with `ping -M do -s 1472`; a tunnel needs a smaller MTU, or "
    "ICMP `fragmentation needed` must be let through"
)
_SHOWN = 8
"""Paths listed in a verdict: a firewall in front of one of 512 nodes breaks a thousand."""
_SEPARATE = 4
"""Cuts of one kind that get a verdict each; the others share the last."""
_SPANS = 8
"""Parts of a list of nodes that a sentence can hold: a VLAN may have every other node."""

_HINTS = {
    "port-rejected": "look for a REJECT rule on the way; if the address is wrong, name the right one: "
    "`rendezvous.address`",
    "port-filtered": "open all TCP ports between the nodes of the job: torch listens on ports that the "
    "kernel chooses, not on the master's alone",
    "network-one-way": "look at the firewall, NetworkPolicy or security group of the node that is not "
    "reached; all TCP ports must be open in both directions",
    "host-unreachable": "`ip route get ADDRESS` on the first node; both must be in connected networks",
    "mtu-black-hole": MTU_HINT,
    "network-lossy": "`ip -s link` and `ethtool -S` on both nodes: errors and drops; a bad cable, a duplex "
    "mismatch, or an overloaded link",
    "store-shared": "two jobs have one address and port: choose another `rendezvous.port`, or leave it out, "
    "and each job finds its own; if the address is not node 0's, name that: `rendezvous.address`",
    "stranger-listens": "something sits between the nodes, a proxy or a service mesh, or the address is "
    "another machine's; exclude the job's ports from it",
}
_UNDIRECTED = frozenset({"network-lossy", "mtu-black-hole", "host-unreachable"})
"""What goes wrong between two nodes, whichever of them noticed."""


class _Fault(NamedTuple):
    code: str
    cut: Partition
    found: list[MeshResult]  # the failed ones
    one_port: bool = False  # others of the same node answer


class _Facts(NamedTuple):
    reached: set[Path]  # by any port
    unrouted: set[Path]
    open_ports: dict[Path, int]  # one that answered
    passed: set[Path]  # by a port as torch's own, or by the master's where that alone was tried
    names: Sequence[str]
    nodes: int
    platform: Platform

    def node(self, number: int) -> Subject:
        return subjects.node(number, self.names)

    def peer(self, result: MeshResult) -> Subject:
        """'node 0 (n1, 10.0.0.5)'."""
        return subjects.node(result.peer, self.names, result.address)

    def side(self, numbers: Collection[int]) -> Sayable:
        """'nodes 0-31 and 40', '2048 nodes (0, 2, 4, …)'."""
        if len(spans(numbers, subjects.ROW)) <= _SPANS + 1:
            return subjects.nodes(numbers, self.names)
        return f"{len(numbers)} nodes ({', '.join(map(str, sorted(numbers)[:_SPANS]))}, …)"


def failed_paths(view: GateView) -> list[Verdict]:
    """Return verdicts on the paths that fail, but for those that do not lead to node 0 at all."""
    failed = [r for r in names.unexplained(view) if not names.leads_astray(view, r)]
    if all(result.outcome == "ok" for result in failed):
        return []
    results = [*failed, *paths.whole(view.passed, view.check_ins)]
    platform = platforms.named(view.plan.platform)
    verdicts = judge(results, view.plan.names, view.plan.nodes, platform)
    return with_subnets(view, differences.with_mtus(view, verdicts))


def judge(
    results: list[MeshResult],
    names: Sequence[str] = (),
    nodes: Optional[int] = None,
    platform: Platform = PLAIN,
) -> list[Verdict]:
    """Empty when every path passed. `names` are the nodes', as in the plan; `nodes`, how many there are."""
    good = [r for r in results if r.outcome == "ok"]
    failed = [r for r in sorted(results, key=lambda r: (r.node, r.peer, r.what)) if r.outcome != "ok"]
    by_responder = {_path(r) for r in results if r.what != paths.MASTER}
    facts = _Facts(
        reached={_path(r) for r in good},
        unrouted={_path(r) for r in failed if r.outcome == "unreachable"},
        open_ports={_path(r): r.port for r in good},
        passed={
            _path(r)
            for r in good
            if r.node != r.peer and (r.what != paths.MASTER or _path(r) not in by_responder)
        },
        names=names,
        platform=platform,
        nodes=nodes or 1 + max((max(_path(r)) for r in results), default=0),
    )
    lossy = [result for result in failed if result.outcome == "lossy"]
    losers = {node for fault in _faults("network-lossy", lossy, facts) for node in _culprits(fault)}
    kinds: dict[str, list[MeshResult]] = {}
    for result in failed:
        # Where most packets get lost, all of them do on some path.
        lost = result.outcome in ("timeout", "stalled") and losers & {result.node, result.peer}
        kinds.setdefault("network-lossy" if lost else _kind(result, facts), []).append(result)
    faults = [fault for kind, found in kinds.items() for fault in _faults(kind, found, facts)]
    # The most paths first: what broke many broke the few as well, more often than not.
    faults.sort(key=lambda fault: (-len(fault.found), fault.code))
    by_code: dict[str, list[_Fault]] = {}
    for fault in faults:
        by_code.setdefault(fault.code, []).append(fault)
    few = [
        [fault, *(by_code[fault.code][_SEPARATE:] if index == _SEPARATE - 1 else [])]
        for code_faults in by_code.values()
        for index, fault in enumerate(code_faults[:_SEPARATE])
    ]
    return [_verdict(group, facts) for group in sorted(few, key=lambda group: -len(group[0].found))]


def notes(results: list[MeshResult], names: Sequence[str]) -> list[str]:
    """Return a note on the paths that pass, but not at the first try."""
    return [
        f"{subjects.node(result.node, names)} -> {subjects.node(result.peer, names, result.address)} "
        f"port {result.port}: {result.detail}"
        for result in results
        if result.outcome == "ok" and result.detail
    ]


def _path(result: MeshResult) -> Path:
    return result.node, result.peer


def _kind(result: MeshResult, facts: _Facts) -> str:
    """Return the code, but for the direction, which follows from the whole cut."""
    there, back = _path(result), _path(result)[::-1]
    if result.outcome == "timeout" and back in facts.unrouted:
        return "host-unreachable"  # the peer has no way to answer
    if result.outcome == "unreachable" and (there in facts.reached or back in facts.reached):
        return "port-rejected"  # packets find their way; a firewall says by ICMP that these may not
    return {
        "timeout": "port-filtered",
        "refused": "port-rejected",
        "unreachable": "host-unreachable",
        "stalled": "mtu-black-hole",
        "lossy": "network-lossy",
        "shared": "store-shared",
    }.get(result.outcome, "stranger-listens")


def _faults(kind: str, found: list[MeshResult], facts: _Facts) -> Iterator[_Fault]:
    """`found`: the failures of one kind. The master's port may be closed alone."""
    alone = [r for r in found if r.what == paths.MASTER and (r.node == r.peer or _path(r) in facts.passed)]
    wide = {_path(r) for r in found if r not in alone}
    passed = facts.passed - wide
    if kind in _UNDIRECTED:
        wide |= {path[::-1] for path in wide}
        passed = passed - wide
    for cut in describe(wide, passed, facts.nodes).partitions:
        held = [r for r in found if _path(r) in wide and cut.holds(_path(r)) and r not in alone]
        wide -= {_path(r) for r in held}
        if all(result.what == paths.MASTER for result in held):
            alone += held
            continue
        back = any(cut.holds(path[::-1]) for path in facts.reached)
        one_way = kind == "port-filtered" and not cut.both and back
        yield _Fault("network-one-way" if one_way else kind, cut, held)
    if alone:
        answers = any(r.node == r.peer or _path(r) in facts.reached for r in alone)
        yield _Fault(kind, Partition(frozenset(r.node for r in alone), frozenset({0}), False), alone, answers)


def _verdict(faults: list[_Fault], facts: _Facts) -> Verdict:
    """Return the verdict on the first fault; it counts the paths of the others."""
    first = faults[0]
    found = [result for fault in faults for result in fault.found]
    more = f" (and {len(found) - len(first.found)} more paths elsewhere)" if len(faults) > 1 else ""
    # How a node fails to reach itself says least; how it was refused says more than that it waited.
    worst = min(first.found, key=lambda r: (r.node == r.peer, r.outcome == "timeout", r.outcome != "lossy"))
    one = len({frozenset(_path(r)) for r in first.found if r.node != r.peer}) < 2
    one = one or (len(first.cut.targets) == 1 and not first.cut.both and first.code not in _UNDIRECTED)
    return Verdict.of(
        first.code,
        say(_of_target(first, worst, facts) if one else _of_groups(first, worst, facts), more),
        "gate",
        nodes=sorted({node for fault in faults for node in _culprits(fault)}),
        facts=[
            *(f"{_way(r, facts)}: {r.outcome}, {r.detail or 'no answer'}" for r in found[:_SHOWN]),
            *([f"{len(found) - _SHOWN} more paths likewise"] if len(found) > _SHOWN else []),
        ],
        hint=facts.platform.hint(first.code, _HINTS[first.code]),
    )


def _of_target(fault: _Fault, bad: MeshResult, facts: _Facts) -> Text:
    """Return the sentence on one failed path, or on several that lead to one node."""
    sources = {result.node for result in fault.found if result.node != result.peer}
    if len(sources) < 2 or fault.cut.both or fault.code in _UNDIRECTED:
        return _of_path(facts.node(bad.node), fault, bad, facts)
    everybody = len(fault.cut.sources) > _SPANS and len(fault.cut.sources | {bad.peer}) >= facts.nodes
    who = "the other nodes" if everybody else facts.side(sources)
    return say(_of_path(who, fault, bad, facts), f" ({len(sources)} paths)")


def _of_path(who: Sayable, fault: _Fault, bad: MeshResult, facts: _Facts) -> Text:
    way, seconds, code = (
        say(who, " -> ", facts.peer(bad), f" port {bad.port}"),
        f"{bad.seconds:.0f} s",
        fault.code,
    )
    if code == "port-rejected":
        how = "" if bad.outcome == "refused" else f" ({bad.detail})"
        return say(way, f" is refused{how} although ", facts.node(bad.peer), " listens there")
    if code == "network-one-way":
        return say(
            who,
            " cannot open connections to ",
            facts.peer(bad),
            f": no answer in {seconds}; the reverse works",
        )
    if code == "port-filtered":
        open_port = facts.open_ports.get(_path(bad))
        if open_port is not None:
            return say(
                way, f": no answer in {seconds} while port {open_port} answers: a firewall drops this port"
            )
        where = ", nor the other way round: packets between them vanish" if fault.cut.both else ""
        return say(way, f": no answer in {seconds}{where}")
    if code == "mtu-black-hole":
        return say(who, " -> ", facts.peer(bad), f": 1 kB passes, 64 kB stalls for {seconds}")
    if code == "network-lossy":
        return say("packets are lost between ", who, " and ", facts.peer(bad), f": {bad.detail}")
    if code == "host-unreachable":
        return say(way, f": {bad.detail}")
    if code == "store-shared":
        where = f"{bad.address} port {bad.port}"
        return say(who, f" would meet another job at {where}, not ", facts.node(bad.peer), f": {bad.detail}")
    return say(
        "what answers ",
        who,
        f" on {bad.address} port {bad.port} is not ",
        facts.node(bad.peer),
        f": {bad.detail}",
    )


def _of_groups(fault: _Fault, bad: MeshResult, facts: _Facts) -> Text:
    """Return a sentence that names both sides; 'the other nodes' is a side that has all of them."""
    cut, code = fault.cut, fault.code
    sources, targets, all_nodes = cut.sources, cut.targets, len(cut.sources | cut.targets) >= facts.nodes
    few = sources if len(sources) < len(targets) else targets
    others = "the other nodes" if all_nodes and len(sources) != len(targets) else ""
    one = others if others and few is targets else facts.side(sources)
    other = others if others and few is sources else facts.side(targets)
    count = f" ({len({_path(r) for r in fault.found})} paths)"
    if code == "mtu-black-hole":
        return say(
            "between ", one, " and ", other, f" 1 kB passes, 64 kB stalls for {bad.seconds:.0f} s{count}"
        )
    if code == "network-lossy":
        return say("packets are lost between ", one, " and ", other, f": {bad.detail}{count}")
    if code in ("stranger-listens", "store-shared"):
        return say(
            "what answers ", one, " in the place of ", other, f" is not of this job: {bad.detail}{count}"
        )
    listed = sorted({result.port for result in fault.found})
    ports = f"port {listed[0]}" if len(listed) == 1 else "any port"
    if cut.both and sources == targets:
        what = say(one, " cannot reach one another")
    elif cut.both and others:
        what = say(facts.side(few), f" {('is' if len(few) == 1 else 'are')} cut off from ", others)
    elif cut.both:
        what = say(one, " and ", other, " cannot reach one another")
    else:
        what = say(one, " cannot reach ", other)
    how = f"no answer in {bad.seconds:.0f} s" if bad.outcome == "timeout" else bad.detail or bad.outcome
    open_port = next((facts.open_ports[_path(r)] for r in fault.found if _path(r) in facts.open_ports), None)
    besides = "; the reverse works" if code == "network-one-way" else ""
    besides += f", while port {open_port} answers: a firewall drops it" if open_port and not besides else ""
    return say(what, f" on {ports}: {how}{besides}{count}")


def _way(result: MeshResult, facts: _Facts) -> str:
    return f"{facts.node(result.node)} -> {facts.peer(result)} port {result.port}"


def _culprits(fault: _Fault) -> list[int]:
    """Return the smaller side; of equal ones both, without those whose port alone did not answer."""
    sources, targets, _ = fault.cut
    if len(sources) == len(targets):
        unclear = fault.code in _UNDIRECTED or fault.code in ("network-one-way", "port-filtered")
        return sorted(sources | targets if unclear and not fault.one_port else targets)
    return sorted(sources if len(sources) < len(targets) and not fault.one_port else targets)


# --- subnets: whether all nodes have the same prefix for their network
#
# Several subnets are as good as one, if a router joins them. Subnets that overlap and are not of one size
# are a mistake: a node looks on the wire for a peer behind a router, or by a router for one that is on the
# wire.


_WAYS = frozenset({"host-unreachable", "network-one-way", "port-filtered"})
"""How it shows when of two nodes one does not know the way to the other."""
_SUBNETS_SHOWN = 4

_Own = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]


def subnet_notes(view: GateView) -> list[Sayable]:
    """Return a note on subnets that do not fit one another, whether or not that does harm today."""
    own = _interfaces(view)
    return [_note(view, own, group) for group in _overlapping(own)]


def with_subnets(view: GateView, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, those on closed paths with the nodes' subnets where these are the reason."""
    own = _interfaces(view)
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
                verdict.continued("; ", _note(view, own, group)),
                nodes=who,
                hint=_hint(view, who[0], own[who[0]], usual),
            )
    if any(own[a].network != own[b].network for a, b in paths):
        ours = {node: str(own[node].network) for node in sorted({node for path in paths for node in path})}
        shown = [f"{view.node(node)} in {network}" for node, network in [*ours.items()][:_SUBNETS_SHOWN]]
        return verdict.with_facts([f"a router has to join them: {', '.join(shown)}"])
    return verdict


def _interfaces(view: GateView) -> dict[int, _Own]:
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


def _note(view: GateView, own: dict[int, _Own], group: list[int]) -> Sayable:
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
