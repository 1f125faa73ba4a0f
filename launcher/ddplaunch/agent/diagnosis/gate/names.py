"""Rules about names and addresses: whether they lead to node 0, by what each node resolves and reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ddplaunch.agent.contract import CheckIn, MeshResult, MeshTask, Verdict
from ddplaunch.agent.diagnosis.gate import hub_unreached, paths
from ddplaunch.agent.diagnosis.gate.view import GateView, addresses, home, odd_ones
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.system.resolve import family, is_loopback, numeric
from ddplaunch.agent.text.saying import Subject, Text, say, spelled


def master_is_loopback(view: GateView) -> Iterator[Verdict]:
    """Yield a verdict where the master's name, or a node's own, leads other nodes to themselves."""
    if not view.checks("names") or len({home(c) for c in view.check_ins.values()}) < 2:
        return
    wrong: dict[int, Text] = {}
    for node, check_in in sorted(view.check_ins.items()):
        master = master_of(view, check_in)
        found = addresses(check_in, master)
        if _elsewhere(view, check_in) and any(map(is_loopback, found)):
            wrong[node] = say(view.node(node), f" resolves {master} to {', '.join(found)}")
        elif _gloo_announces_loopback(check_in) and not view.plan.gate.interface:
            own = check_in.facts["names"]["own"]
            wrong[node] = say(
                view.node(node),
                f"'s own name {own} resolves to {addresses(check_in, own)[0]}, which Gloo would give to "
                "its peers",
            )
    if wrong:
        yield Verdict.of(
            "master-is-loopback",
            say(next(iter(wrong.values())), ", which is that node itself"),
            "gate",
            nodes=list(wrong),
            facts=map(spelled, wrong.values()),
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
        say(": it is ", owner, "'s")
        if owner
        else f": {first.detail}"
        if first.outcome in ("stranger", "shared")
        else ""
    )
    shown = first.address if tried == [first.address] else f"{first.address} ({', '.join(tried)})"
    right = [n for n, c in view.check_ins.items() if set(addresses(c, first.address)) & set(_own(zero))]
    yield Verdict.of(
        "dns-disagrees" if right else "master-is-not-node-zero",
        say(
            view.nodes(wrong),
            f" would look for the master at {shown}, which is not an address of ",
            subjects.node(0, view.plan.names, zero.address),
            met,
        ),
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


def name_notes(view: GateView) -> list[str]:
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


def _owner(view: GateView, address: str) -> Optional[Subject]:
    owners = (view.node(node) for node, each in sorted(view.check_ins.items()) if address in _own(each))
    return next(owners, None)


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


# --- IPv4 and IPv6: one of a name's addresses leads to node 0 and the other does not
#
# torch's TCPStore asks for IPv6 addresses first. One that refuses, or to which there is no route, costs it a
# moment, then it takes the next; one that is silent costs it all of its patience, and the job with it
# (torch/csrc/distributed/c10d/socket.cpp, and tried).


_SILENT = ("timeout", "stalled")
_NAME_HINT = (
    "name node 0 by the address that answers, `rendezvous.address: {}`, or leave that out, and the gate "
    "finds it; otherwise remove the other one from the name (DNS, /etc/hosts), or let its packets through: a "
    "firewall has separate rules for IPv6"
)
_NODE_HINT = "give all nodes an address of one family, in a network by which they reach each other"
_FAMILY_HINT = "leave NCCL_SOCKET_FAMILY out, or route what it asks for; /etc/nccl.conf may set it, too"


def tasks(tried: list[MeshTask], check_in: CheckIn) -> list[MeshTask]:
    """Further paths for one node: to each address of the master's name, where it has both families."""
    found = []
    for task in tried:
        known = addresses(check_in, task.address) if task.what == paths.MASTER else []
        if len({family(each) for each in known}) > 1:
            found += [MeshTask(task.peer, each, task.port, paths.STORE, task.after) for each in known]
    return found


def silent_names(view: GateView) -> Iterator[Verdict]:
    """Nodes for which the master's name has an IPv6 address that swallows packets, and one that answers."""
    wrong = _silent(view)
    if not wrong:
        return
    node, (path, answers) = next(iter(wrong.items()))
    name = master_of(view, view.check_ins[node])
    yield Verdict.of(
        "ip-family-mixed",
        say(
            view.nodes(wrong),
            f" {phrases.one_or([*wrong], 'resolves', 'resolve')} {name} to {path.address}, where "
            f"packets to port {path.port} vanish, and to {answers}, which answers: torch tries IPv6 "
            "first, and waits there",
        ),
        "gate",
        nodes=[*wrong],
        facts=[f"{view.node(each.node)} -> {each.detail or each.address}" for each, _ in wrong.values()],
        hint=_NAME_HINT.format(answers),
    )


def apart(view: GateView) -> Iterator[Verdict]:
    """Nodes that no address joins to the others: one side has IPv4 alone, the other IPv6."""
    failed = [result for result in view.mesh if lacks_family(view, result)]
    if not failed:
        return
    first = min(failed, key=lambda result: (result.node, result.peer))
    families = {node: _families(c) for node, c in view.check_ins.items()}
    _, odd = odd_ones(families)
    yield Verdict.of(
        "ip-family-mixed",
        say(
            view.node(first.node),
            f" has {_shown(families[first.node])} and cannot reach ",
            subjects.node(first.peer, view.plan.names, first.address),
        ),
        "gate",
        nodes=sorted(node for who in odd.values() for node in who) or [first.node],
        facts=[f"{view.node(node)}: {', '.join(_outward(c))}" for node, c in sorted(view.check_ins.items())],
        hint=_NODE_HINT,
    )


def chosen(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on a family of NCCL by which peers do not reach the interface that they do reach."""
    bad = [path for path in view.library if path.outcome != "ok" and is_chosen(view, path)]
    wrong = {path.peer: path for path in sorted(bad, key=lambda path: (path.peer, -path.node))}
    if not wrong:
        return
    node, path = min(wrong.items())
    yield Verdict.of(
        "ip-family-mixed",
        say(
            view.node(node),
            f"'s NCCL takes {path.address}, for NCCL_SOCKET_FAMILY={_asked(view, node)}, which ",
            view.node(path.node),
            f" cannot reach ({path.outcome}); it reaches {view.check_ins[node].address}",
        ),
        "gate",
        nodes=[*wrong],
        facts=[f"{view.node(each)}: NCCL_SOCKET_FAMILY={_asked(view, each)}" for each in wrong],
        hint=_FAMILY_HINT,
    )


def family_notes(view: GateView) -> list[str]:
    """Return a note on IPv6 addresses of the master's name that are refused at once."""
    return [
        f"{view.node(path.node)} is answered {path.outcome} at {path.address}, an address of "
        f"{master_of(view, view.check_ins[path.node])}, before torch tries the next"
        for path in view.library
        if path.what == paths.STORE
        and ":" in path.address
        and path.outcome not in ("ok", *_SILENT)
        and not is_loopback(path.address)  # of localhost; many machines have no ::1, and it costs nothing
    ]


def unexplained(view: GateView) -> list[MeshResult]:
    """Return the mesh without the failures that the rules above explain."""
    silent = _silent(view)
    return [
        result
        for result in view.mesh
        if not lacks_family(view, result)
        # Too long was waited at one address for the next one's good.
        and not (result.what == paths.MASTER and result.outcome != "ok" and result.node in silent)
    ]


def lacks_family(view: GateView, result: MeshResult) -> bool:
    """Whether there is no way because its node has no address like the one that it tried."""
    if result.outcome != "unreachable" or result.node not in view.check_ins:
        return False
    own = _families(view.check_ins[result.node])
    return bool(own) and numeric(result.address) and family(result.address) not in own


def is_chosen(view: GateView, path: MeshResult) -> bool:
    """Whether this path leads to an address that NCCL takes for its family's sake alone."""
    if path.what != paths.LIBRARY or path.peer not in view.check_ins:
        return False
    there = view.check_ins[path.peer]
    other = family(path.address) != family(there.address)
    of_nccl = there.facts.get("interfaces", {}).get("library") == "NCCL"
    return other and of_nccl and _asked(view, path.peer) in ("AF_INET", "AF_INET6")


def _silent(view: GateView) -> dict[int, tuple[MeshResult, str]]:
    """Return by node the path to an IPv6 address at which torch will stay, and an address that answers."""
    failed: dict[int, dict[str, MeshResult]] = {}
    for path in view.library:
        if path.what == paths.STORE and path.outcome != "ok" and path.node in view.check_ins:
            failed.setdefault(path.node, {})[path.address] = path
    found = {}
    for node, by_address in sorted(failed.items()):
        known = addresses(view.check_ins[node], master_of(view, view.check_ins[node]))
        silent = [by_address[each] for each in known if each in by_address and _swallows(by_address[each])]
        answering = [each for each in known if each not in by_address]
        if silent and answering:
            found[node] = silent[0], answering[0]
    return found


def _swallows(path: MeshResult) -> bool:
    return ":" in path.address and path.outcome in _SILENT


def _asked(view: GateView, node: int) -> str:
    environment = view.check_ins[node].facts.get("configuration", {}).get("environment", {})
    return str(environment.get("NCCL_SOCKET_FAMILY", ""))


def _outward(check_in: CheckIn) -> list[str]:
    found = check_in.facts.get("names", {}).get("interfaces", [])
    return [address for _, address in found if not is_loopback(address)]


def _families(check_in: CheckIn) -> frozenset[str]:
    return frozenset(map(family, _outward(check_in)))


def _shown(families: frozenset[str]) -> str:
    return f"only {' and '.join(sorted(families))} addresses"
