"""Rules about IPv4 and IPv6: one of a name's addresses leads to node 0 and the other does not. Pure.

torch's TCPStore asks for IPv6 addresses first. One that refuses, or to which there is no route, costs it a
moment, then it takes the next; one that is silent costs it all of its patience, and the job with it
(torch/csrc/distributed/c10d/socket.cpp, and tried).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddplaunch.agent.contract import CheckIn, MeshResult, MeshTask, Verdict
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.diagnosis.gate.job_view import GateView, addresses, odd_ones
from ddplaunch.agent.diagnosis.gate.node_names import master_of
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.system.resolve import family, is_loopback, numeric

_SILENT = ("timeout", "stalled")
_NAME_HINT = (
    "name node 0 by the address that answers, `rendezvous.address: {}`, or leave that out, and the gate "
    "finds it; else take the other one from the name (DNS, /etc/hosts), or let its packets through: a "
    "firewall has rules of its own for IPv6"
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
    yield Verdict(
        "ip-family-mixed",
        f"{view.nodes(wrong)} {phrases.one_or([*wrong], 'resolves', 'resolve')} {name} to {path.address}, "
        f"where packets to port {path.port} vanish, and to {answers}, which answers: torch tries IPv6 "
        "first, and waits there",
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
    yield Verdict(
        "ip-family-mixed",
        f"{view.node(first.node)} has {_shown(families[first.node])} and cannot reach "
        f"{subjects.node(first.peer, view.plan.names, first.address)}",
        "gate",
        nodes=sorted(node for who in odd.values() for node in who) or [first.node],
        facts=[f"{view.node(node)}: {', '.join(_own(c))}" for node, c in sorted(view.check_ins.items())],
        hint=_NODE_HINT,
    )


def chosen(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on a family of NCCL by which peers do not reach the interface that they do reach."""
    bad = [path for path in view.library if path.outcome != "ok" and is_chosen(view, path)]
    wrong = {path.peer: path for path in sorted(bad, key=lambda path: (path.peer, -path.node))}
    if not wrong:
        return
    node, path = min(wrong.items())
    yield Verdict(
        "ip-family-mixed",
        f"{view.node(node)}'s NCCL takes {path.address}, for NCCL_SOCKET_FAMILY={_asked(view, node)}, which "
        f"{view.node(path.node)} cannot reach ({path.outcome}); it reaches {view.check_ins[node].address}",
        "gate",
        nodes=[*wrong],
        facts=[f"{view.node(each)}: NCCL_SOCKET_FAMILY={_asked(view, each)}" for each in wrong],
        hint=_FAMILY_HINT,
    )


def notes(view: GateView) -> list[str]:
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


def _own(check_in: CheckIn) -> list[str]:
    found = check_in.facts.get("names", {}).get("interfaces", [])
    return [address for _, address in found if not is_loopback(address)]


def _families(check_in: CheckIn) -> frozenset[str]:
    return frozenset(map(family, _own(check_in)))


def _shown(families: frozenset[str]) -> str:
    return f"only {' and '.join(sorted(families))} addresses"
