"""Rules about the interfaces that NCCL and Gloo will take: whether peers reach them, and how to fix it.

What a user or an image has set is never overridden, nor is a choice that works. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import CheckIn, MeshResult, MeshTask, RendezvousSettings, Verdict
from ddplaunch.agent.diagnosis.gate import names, paths
from ddplaunch.agent.diagnosis.gate.view import GateView, odd_ones
from ddplaunch.agent.interfaces import predict
from ddplaunch.agent.system.resolve import family, is_loopback
from ddplaunch.agent.text.saying import Text, say, spelled

_VARIABLES = {"NCCL": "NCCL_SOCKET_IFNAME", "Gloo": "GLOO_SOCKET_IFNAME"}
_NONE_HINT = (
    "`ip -br address` on that node shows its interfaces: NCCL takes a name as the beginning of one unless it "
    "follows a `=`, Gloo takes whole names only; or leave it out, and the gate finds what works"
)


class InterfaceFix(NamedTuple):
    variable: str
    value: str
    why: str


def addresses(check_ins: dict[int, CheckIn]) -> dict[int, list[str]]:
    """Return the addresses that each node's library takes, by node."""
    return {node: [each for _, each in _facts(found)["takes"]] for node, found in check_ins.items()}


def tasks(tried: list[MeshTask], taken: dict[int, list[str]]) -> list[MeshTask]:
    """Return more paths for one node to try: to those addresses of its peers that are not the gate's own.

    `taken`: what `addresses` returns.
    """
    return [
        MeshTask(task.peer, address, task.port, paths.LIBRARY)
        for task in tried
        if task.what == paths.RESPONDER
        for address in taken[task.peer]
        if address != task.address
    ]


def missing(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on nodes where a library finds no interface: it raises or waits. One node needs none."""
    for library in _VARIABLES if view.plan.nodes > 1 else ():
        facts = {node: _facts(c) for node, c in sorted(view.check_ins.items())}
        nodes = [node for node, f in facts.items() if f["library"] == library and not f["takes"]]
        if nodes:
            yield Verdict.of(
                "nccl-interface-missing" if library == "NCCL" else "gloo-interface-wrong",
                say(view.nodes(nodes), f": {library} finds no interface: {facts[nodes[0]]['why']}"),
                "gate",
                nodes=nodes,
                facts=[f"{view.node(node)} has {_all(view.check_ins[node])}" for node in nodes],
                hint=_NONE_HINT,
            )


def wrong(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on a set interface that peers do not reach, and on a choice that no setting fixes."""
    bad = {node: path for node, path in _unreached(view).items() if _fix(view, node, path) is None}
    for library, variable in _VARIABLES.items():
        nodes = [node for node in bad if _facts(view.check_ins[node])["library"] == library]
        if not nodes:
            continue
        first, path = nodes[0], bad[nodes[0]]
        works, _ = _proven(view, first)
        yield Verdict.of(
            "nccl-interface-wrong" if library == "NCCL" else "gloo-interface-wrong",
            say(
                _taken(view, path),
                ", which ",
                view.node(path.node),
                f" cannot reach ({_obstacle(path)})" + (f"; {works} works" if works else ""),
            ),
            "gate",
            nodes=nodes,
            facts=[
                spelled(say(_taken(view, bad[node]), f": {_facts(view.check_ins[node])['why']}"))
                for node in nodes
            ],
            hint=f"leave {variable} out, and the gate sets what works"
            + (f"; or name {works}" if works else "")
            + "; /etc/nccl.conf and ~/.nccl.conf may set it, too" * (library == "NCCL"),
        )


def fixes(view: GateView) -> dict[int, InterfaceFix]:
    """Return by node what to set where a library is free to choose and chooses wrongly."""
    found = {node: _fix(view, node, path) for node, path in _unreached(view).items()}
    return {node: fix for node, fix in found.items() if fix is not None}


def for_all(agreed: RendezvousSettings, fixes: dict[int, InterfaceFix], view: GateView) -> RendezvousSettings:
    """Return one fix for all nodes where it changes nothing on the others: a script has one environment."""
    kinds = {fix[:2] for fix in fixes.values()}
    others = [_facts(c) for node, c in view.check_ins.items() if node not in fixes]
    free = all(facts["takes"] and not facts["set"] for facts in others)
    names = {name for facts in others for name, _ in facts["takes"]}
    fix = next(iter(fixes.values()), None)
    fits = fix is not None and len(kinds) == 1 and free and names <= {fix.value.lstrip("=")}
    return settle(agreed, fix) if fix is not None and fits else agreed


def settle(agreed: RendezvousSettings, fix: InterfaceFix) -> RendezvousSettings:
    """Return the settings of all nodes, with the fix that this node's library needs."""
    env, why = {fix.variable: fix.value, **agreed.env}, {fix.variable: fix.why, **agreed.why}
    return replace(agreed, env=env, why=why)


def notes(view: GateView) -> list[str]:
    """Return what is set for whom; of many nodes alike the first one's reason."""
    grouped: dict[tuple[str, str], list[int]] = {}
    found = fixes(view)
    for node, fix in found.items():
        grouped.setdefault(fix[:2], []).append(node)
    return [
        f"{variable}={value} is set on {view.nodes(who)}: {found[who[0]].why}"
        for (variable, value), who in grouped.items()
    ]


def _unreached(view: GateView) -> dict[int, MeshResult]:
    """Return by node a failed path to its library's address, from a peer that does reach the node.

    Of several the one to the address that the library takes first. Who connects to whom may change with what
    is fixed, and so it is looked at again.
    """
    apart = {(path.node, path.peer) for path in view.mesh if path.outcome != "ok"}
    failed = [path for path in view.library if path.what == paths.LIBRARY and path.outcome != "ok"]
    failed = [p for p in failed if (p.node, p.peer) not in apart and not names.is_chosen(view, p)]
    taken = {node: [address for _, address in _facts(c)["takes"]] for node, c in view.check_ins.items()}
    found: dict[int, MeshResult] = {}
    while True:
        bad = [path for path in failed if _opens(view, taken, path)] + list(_of_two_families(view, taken))
        bad = [path for path in bad if path.peer not in found]
        for path in sorted(bad, key=lambda path: (path.peer, _place(taken, path), path.node)):
            found.setdefault(path.peer, path)
        if not bad:
            return found
        for node in {path.peer for path in bad}:
            if _fix(view, node, found[node]) is not None:
                taken[node] = [_proven(view, node)[1]]


def _opens(view: GateView, taken: dict[int, list[str]], path: MeshResult) -> bool:
    """Whether the library will need this path. Gloo joins the first of one list to the first of another."""
    here, there = taken.get(path.node, []), taken[path.peer]
    if not _of_gloo(view, path.peer):
        return True
    places = [place for place, address in enumerate(there) if address == path.address]
    return any(place >= len(here) or predict.gloo_connects(here[place], path.address) for place in places)


_UNTRIED = 0
"""Port of a path that Gloo itself would not try."""


def _of_two_families(view: GateView, taken: dict[int, list[str]]) -> Iterator[MeshResult]:
    """Gloo gives up where one rank has an IPv4 address and another an IPv6 one, whatever is routed."""
    known = {node: each[0] for node, each in sorted(taken.items()) if each and _of_gloo(view, node)}
    right, odd = odd_ones({node: family(address) for node, address in known.items()}) if known else ("", {})
    usual = next((node for node, address in known.items() if family(address) == right), 0)
    for node in [node for who in odd.values() for node in who]:
        how = f"Gloo joins no {family(known[node])} to {known[usual]}"
        yield MeshResult(usual, node, known[node], _UNTRIED, paths.LIBRARY, "unreachable", how)


def _obstacle(path: MeshResult) -> str:
    return path.detail if path.port == _UNTRIED else path.outcome


def _of_gloo(view: GateView, node: int) -> bool:
    return bool(_facts(view.check_ins[node])["library"] == "Gloo")


def _place(taken: dict[int, list[str]], path: MeshResult) -> int:
    places = taken[path.peer]
    return places.index(path.address) if path.address in places else len(places)


def _fix(view: GateView, node: int, path: MeshResult) -> Optional[InterfaceFix]:
    facts, works = _facts(view.check_ins[node]), _proven(view, node)[0]
    if facts["set"] or not works:
        return None
    why = say("by itself ", _taken(view, path), ", which ", view.node(path.node), " cannot reach")
    exact = "=" if facts["library"] == "NCCL" else ""  # a prefix otherwise; Gloo takes whole names only
    return InterfaceFix(_VARIABLES[facts["library"]], exact + works, spelled(why))


def _facts(check_in: CheckIn) -> dict[str, Any]:
    found: dict[str, Any] = check_in.facts.get("interfaces") or {}
    return found if "takes" in found else {"library": "", "takes": []}


def _taken(view: GateView, path: MeshResult) -> Text:
    facts = _facts(view.check_ins[path.peer])
    which = next((name for name, address in facts["takes"] if address == path.address), "")
    return say(view.node(path.peer), f"'s {facts['library']} takes {which} {path.address}")


def _all(check_in: CheckIn) -> str:
    found = check_in.facts.get("names", {}).get("interfaces", [])
    return ", ".join(f"{name} {address}" for name, address in found) or "none"


def _proven(view: GateView, node: int) -> tuple[str, str]:
    """Return the interface whose first address the mesh has tried, and this; no setting can name an alias.

    Node 0 may come to its own hub by loopback. Then it is where the others reached it that counts.
    """
    tried, first = view.met_at(node), dict[str, str]()
    for name, address in view.check_ins[node].facts.get("names", {}).get("interfaces", []):
        first.setdefault(name, address)
    found = [each for each in first.items() if each[1] in tried and ":" not in each[0]]
    return min(found, key=lambda each: is_loopback(each[1]), default=("", ""))
