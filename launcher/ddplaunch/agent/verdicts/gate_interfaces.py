"""Whether the interfaces that NCCL or Gloo will take lead to the peers: what stands against it, or mends it.

What a user or an image has set is never overridden, nor is a choice that works. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Optional

from ddplaunch.agent import paths
from ddplaunch.agent.contract import Agreed, CheckIn, MeshResult, MeshTask, Verdict
from ddplaunch.agent.resolve import is_loopback
from ddplaunch.agent.verdicts import gate_families
from ddplaunch.agent.verdicts.roll import Roll

_VARIABLES = {"NCCL": "NCCL_SOCKET_IFNAME", "Gloo": "GLOO_SOCKET_IFNAME"}
_NONE_HINT = (
    "`ip -br address` on that node shows its interfaces: NCCL takes a name as the beginning of one unless it "
    "stands behind `=`, Gloo takes whole names only; or leave it out, and the gate finds what works"
)


class Mend(NamedTuple):
    variable: str
    value: str
    why: str


def tasks(tried: list[MeshTask], check_ins: dict[int, CheckIn]) -> list[MeshTask]:
    """Further paths for one node: to what each peer's library takes besides the gate's own address."""
    return [
        MeshTask(task.peer, address, task.port, paths.LIBRARY)
        for task in tried
        if task.what == paths.RESPONDER
        for _, address in _facts(check_ins[task.peer])["takes"]
        if address != task.address
    ]


def missing(roll: Roll) -> Iterator[Verdict]:
    """The library will find no interface, and raise or wait. Of one node alone it may never be asked to."""
    for library in _VARIABLES if roll.plan.nodes > 1 else ():
        facts = {node: _facts(c) for node, c in sorted(roll.check_ins.items())}
        nodes = [node for node, f in facts.items() if f["library"] == library and not f["takes"]]
        if nodes:
            yield Verdict(
                "nccl-interface-missing" if library == "NCCL" else "gloo-interface-wrong",
                f"{roll.nodes(nodes)}: {library} finds no interface: {facts[nodes[0]]['why']}",
                "gate",
                nodes=nodes,
                facts=[f"{roll.node(node)} has {_all(roll.check_ins[node])}" for node in nodes],
                hint=_NONE_HINT,
            )


def wrong(roll: Roll) -> Iterator[Verdict]:
    """A library was told to take an interface that peers do not reach, or there is nothing better to set."""
    bad = {node: path for node, path in _unreached(roll).items() if _mend(roll, node, path) is None}
    for library, variable in _VARIABLES.items():
        nodes = [node for node in bad if _facts(roll.check_ins[node])["library"] == library]
        if not nodes:
            continue
        first, path = nodes[0], bad[nodes[0]]
        works = _proven(roll, first)
        yield Verdict(
            f"{library.lower()}-interface-wrong",
            f"{_taken(roll, path)}, which {roll.node(path.node)} cannot reach ({path.outcome})"
            + (f"; {works} works" if works else ""),
            "gate",
            nodes=nodes,
            facts=[f"{_taken(roll, bad[node])}: {_facts(roll.check_ins[node])['why']}" for node in nodes],
            hint=f"leave {variable} out, and the gate sets what works"
            + (f"; or name {works}" if works else "")
            + "; /etc/nccl.conf and ~/.nccl.conf may set it, too" * (library == "NCCL"),
        )


def mends(roll: Roll) -> dict[int, Mend]:
    """By node: what to set where a library is free to choose, and chooses wrongly."""
    found = {node: _mend(roll, node, path) for node, path in _unreached(roll).items()}
    return {node: mend for node, mend in found.items() if mend is not None}


def for_all(agreed: Agreed, mends: dict[int, Mend], roll: Roll) -> Agreed:
    """One mend for all nodes, where it changes nothing on the others: a script has one environment."""
    kinds = {mend[:2] for mend in mends.values()}
    others = [_facts(c) for node, c in roll.check_ins.items() if node not in mends]
    free = all(facts["takes"] and not facts["set"] for facts in others)
    names = {name for facts in others for name, _ in facts["takes"]}
    mend = next(iter(mends.values()), None)
    fits = mend is not None and len(kinds) == 1 and free and names <= {mend.value.lstrip("=")}
    return settle(agreed, mend) if mend is not None and fits else agreed


def settle(agreed: Agreed, mend: Mend) -> Agreed:
    """What all nodes are told, and what only this one's library needs."""
    env, why = {mend.variable: mend.value, **agreed.env}, {mend.variable: mend.why, **agreed.why}
    return replace(agreed, env=env, why=why)


def notes(roll: Roll) -> list[str]:
    """What is set for whom; of many nodes alike the first one's reason."""
    alike: dict[tuple[str, str], list[int]] = {}
    found = mends(roll)
    for node, mend in found.items():
        alike.setdefault(mend[:2], []).append(node)
    return [
        f"{variable}={value} is set on {roll.nodes(who)}: {found[who[0]].why}"
        for (variable, value), who in alike.items()
    ]


def _unreached(roll: Roll) -> dict[int, MeshResult]:
    """By node: a path on which its library's address was not reached by a peer that reaches the node.

    Of several the one to the address that the library takes first.
    """
    apart = {(path.node, path.peer) for path in roll.mesh if path.outcome != "ok"}
    failed = [path for path in roll.library if path.what == paths.LIBRARY and path.outcome != "ok"]
    bad = [p for p in failed if (p.node, p.peer) not in apart and not gate_families.is_chosen(roll, p)]
    found: dict[int, MeshResult] = {}
    for path in sorted(bad, key=lambda path: (path.peer, _place(roll, path), path.node)):
        found.setdefault(path.peer, path)
    return found


def _place(roll: Roll, path: MeshResult) -> int:
    takes = _facts(roll.check_ins[path.peer])["takes"]
    return next((place for place, (_, address) in enumerate(takes) if address == path.address), len(takes))


def _mend(roll: Roll, node: int, path: MeshResult) -> Optional[Mend]:
    facts, works = _facts(roll.check_ins[node]), _proven(roll, node)
    if facts["set"] or not works:
        return None
    why = f"by itself {_taken(roll, path)}, which {roll.node(path.node)} cannot reach"
    exact = "=" if facts["library"] == "NCCL" else ""  # a prefix otherwise; Gloo takes whole names only
    return Mend(_VARIABLES[facts["library"]], exact + works, why)


def _facts(check_in: CheckIn) -> dict[str, Any]:
    found: dict[str, Any] = check_in.facts.get("interfaces") or {}
    return found if "takes" in found else {"library": "", "takes": []}


def _taken(roll: Roll, path: MeshResult) -> str:
    facts = _facts(roll.check_ins[path.peer])
    which = next((name for name, address in facts["takes"] if address == path.address), "")
    return f"{roll.node(path.peer)}'s {facts['library']} takes {which} {path.address}"


def _all(check_in: CheckIn) -> str:
    found = check_in.facts.get("names", {}).get("interfaces", [])
    return ", ".join(f"{name} {address}" for name, address in found) or "none"


def _proven(roll: Roll, node: int) -> str:
    """The interface whose first address the mesh has tried; an alias can be named to nobody.

    Node 0 may come to its own hub by loopback. Then it is where the others reached it that counts.
    """
    tried, first = roll.met_at(node), dict[str, str]()
    for name, address in roll.check_ins[node].facts.get("names", {}).get("interfaces", []):
        first.setdefault(name, address)
    found = [name for name, address in first.items() if address in tried and ":" not in name]
    return min(found, key=lambda name: is_loopback(first[name]), default="")
