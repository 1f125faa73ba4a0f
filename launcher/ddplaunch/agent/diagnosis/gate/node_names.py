"""Rules about names and addresses: whether they lead to node 0, by what each node resolves and reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ddplaunch.agent.contract import CheckIn, MeshResult, Verdict
from ddplaunch.agent.diagnosis.gate import hub_unreached, paths
from ddplaunch.agent.diagnosis.gate.job_view import GateView, addresses, home
from ddplaunch.agent.system import subjects
from ddplaunch.agent.system.resolve import is_loopback


def master_is_loopback(view: GateView) -> Iterator[Verdict]:
    """Yield a verdict where the master's name, or a node's own, leads other nodes to themselves."""
    if not view.checks("names") or len({home(c) for c in view.check_ins.values()}) < 2:
        return
    wrong = {}
    for node, check_in in sorted(view.check_ins.items()):
        master = master_of(view, check_in)
        found = addresses(check_in, master)
        if _elsewhere(view, check_in) and any(map(is_loopback, found)):
            wrong[node] = f"{view.node(node)} resolves {master} to {', '.join(found)}"
        elif _gloo_announces_loopback(check_in) and not view.plan.gate.interface:
            own = check_in.facts["names"]["own"]
            wrong[node] = (
                f"{view.node(node)}'s own name {own} resolves to {addresses(check_in, own)[0]}, "
                "which Gloo would give to its peers"
            )
    if wrong:
        yield Verdict(
            "master-is-loopback",
            next(iter(wrong.values())) + ", which is that node itself",
            "gate",
            nodes=list(wrong),
            facts=list(wrong.values()),
            hint=hub_unreached.LOOPBACK_HINT,
        )


def master_is_not_node_zero(view: GateView) -> Iterator[Verdict]:
    """Yield a verdict where the way to the master is closed, and its address is none of node 0's.

    Where the way is open it leads to node 0, whatever the address looks like: node 0 proved itself there.
    Where the same name leads others to node 0, the job has named it well, and the odd nodes are at fault.
    """
    wrong = {result.node: result for result in view.mesh if leads_astray(view, result)}
    if not wrong:
        return
    zero = view.check_ins[0]
    first = wrong[min(wrong)]
    tried = _tried(view, first)
    owner = _owner(view, tried[0])
    met = (
        f": it is {owner}'s"
        if owner
        else f": {first.detail}"
        if first.outcome in ("stranger", "shared")
        else ""
    )
    shown = first.address if tried == [first.address] else f"{first.address} ({', '.join(tried)})"
    right = [n for n, c in view.check_ins.items() if set(addresses(c, first.address)) & set(_own(zero))]
    yield Verdict(
        "dns-disagrees" if right else "master-is-not-node-zero",
        f"{view.nodes(wrong)} would look for the master at {shown}, which is not an address of "
        f"{subjects.node(0, view.plan.names, zero.address)}{met}",
        "gate",
        nodes=sorted(wrong),
        facts=[
            f"{view.node(node)}: {', '.join(_tried(view, result))} port {result.port}: {result.outcome}"
            for node, result in sorted(wrong.items())
        ]
        + [f"{view.node(0)} has {', '.join(_own(zero))}"]
        + ([f"{view.nodes(right)} resolve {first.address} to it"] if right else []),
        hint="look for the name in /etc/hosts and DNS on that node: the others find node 0 by it"
        if right
        else "MASTER_ADDR must lead every node to node 0: leave `rendezvous.address` out, and the gate finds "
        "it; or look for the name in /etc/hosts and DNS on that node",
    )


def leads_astray(view: GateView, result: MeshResult) -> bool:
    """Whether this path failed because it does not lead to node 0's machine."""
    if result.what != paths.MASTER or result.outcome == "ok" or 0 not in view.check_ins:
        return False
    tried, own = _tried(view, result), _own(view.check_ins[0])
    return bool(tried and own) and not any(each in own or is_loopback(each) for each in tried)


def leads_nowhere(view: GateView, result: MeshResult) -> bool:
    """Whether this path failed because its node does not know the master's name, or takes it for its own."""
    return result.what == paths.MASTER and result.outcome != "ok" and is_misled(view, result.node)


def is_misled(view: GateView, node: int) -> bool:
    """Whether the master's name leads this node nowhere, or to itself."""
    check_in = view.check_ins.get(node)
    if check_in is None or not view.checks("names"):
        return False
    master = master_of(view, check_in)
    if master in check_in.facts.get("names", {}).get("unresolved", {}):
        return True
    return _elsewhere(view, check_in) and any(map(is_loopback, addresses(check_in, master)))


def notes(view: GateView) -> list[str]:
    """Return a note on nodes that cannot resolve node 0's name, where the job does not use it."""
    name = view.plan.names[0] if view.plan.names and view.checks("names") else ""
    found = []
    for node, check_in in sorted(view.check_ins.items()):
        wrong = _wrong(view, check_in, name)
        if name and wrong and master_of(view, check_in) != name:
            address = view.check_ins[0].address if 0 in view.check_ins else "its address"
            found.append(f"{view.node(node)} {wrong}; it reaches node 0 at {address}")
    return found


def master_of(view: GateView, check_in: CheckIn) -> str:
    """Return the name or address by which its ranks will look for node 0; empty where the gate finds it."""
    return str(check_in.facts.get("names", {}).get("master", view.plan.master_addr) or "")


def _wrong(view: GateView, check_in: CheckIn, name: str) -> Optional[str]:
    found = addresses(check_in, name)
    if name in check_in.facts.get("names", {}).get("unresolved", {}):
        return f"cannot resolve {name}"
    own = _own(view.check_ins[0]) if 0 in view.check_ins else []
    if _elsewhere(view, check_in) and any(map(is_loopback, found)):
        return f"resolves {name} to {', '.join(found)}, which is itself"
    if found and own and not any(each in own or is_loopback(each) for each in found):
        return f"resolves {name} to {', '.join(found)}, which is not node 0"
    return None


def _tried(view: GateView, result: MeshResult) -> list[str]:
    """Return the addresses behind a path's name, as its node resolves it."""
    return addresses(view.check_ins[result.node], result.address) if result.node in view.check_ins else []


def _own(check_in: CheckIn) -> list[str]:
    """Return the addresses of its interfaces; empty where they are not known."""
    found = check_in.facts.get("names", {}).get("interfaces", [])
    return [address for _, address in found if not is_loopback(address)]


def _owner(view: GateView, address: str) -> str:
    owners = [view.node(node) for node, each in sorted(view.check_ins.items()) if address in _own(each)]
    return owners[0] if owners else ""


def _elsewhere(view: GateView, check_in: CheckIn) -> bool:
    """Whether node 0's loopback interface is not this node's."""
    return home(check_in) != (home(view.check_ins[0]) if 0 in view.check_ins else ("", ""))


def _gloo_announces_loopback(check_in: CheckIn) -> bool:
    """Gloo gives its peers the first address of the host's own name, unless GLOO_SOCKET_IFNAME is set.

    Jobs on GPUs seldom use Gloo, so a node with GPUs is not judged by this.
    """
    facts = check_in.facts.get("names", {})
    environment = check_in.facts.get("configuration", {}).get("environment", {})
    found = addresses(check_in, facts.get("own", ""))
    first_is_loopback = bool(found) and is_loopback(found[0])
    return first_is_loopback and not facts.get("gpus") and not environment.get("GLOO_SOCKET_IFNAME")
