"""Paths that passed at the first try, in a short form: a large job has hundreds of thousands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddplaunch.agent.contract import CheckIn, MeshResult

MASTER = "master"
"""What stands for a peer's number where it was node 0's master port that was tried."""
RESPONDER = "responder"
LIBRARY = "library"
"""What a path is that leads to the address which a peer's library will take."""
STORE = "store"
"""Likewise, to one of several addresses behind node 0's name."""
_NONE: Mapping[str, Mapping[str, list[int]]] = {}
BESIDE = (LIBRARY, STORE)
"""What is tried beside the mesh itself."""


def parted(
    results: Iterable[MeshResult],
) -> tuple[list[MeshResult], dict[str, int], dict[str, list[int]]]:
    """Return one node's failed or remarkable results; by peer, milliseconds, `rtt` and `mtu` of the others.

    Of paths beside the mesh it is only of interest that they fail.
    """
    remarkable, passed, links = [], {}, {}
    for result in results:
        if result.outcome != "ok" or result.detail:
            remarkable.append(result)
        elif result.what in (MASTER, RESPONDER):
            peer = MASTER if result.what == MASTER else str(result.peer)
            passed[peer] = round(result.seconds * 1000)
            if result.rtt or result.mtu:
                links[peer] = [result.rtt or 0, result.mtu or 0]
    return remarkable, passed, links


def whole(
    passed: Mapping[str, Mapping[str, int]],
    check_ins: Mapping[int, CheckIn],
    links: Mapping[str, Mapping[str, list[int]]] = _NONE,
) -> list[MeshResult]:
    """Return the results of which `passed` and `links`, by node, were made; each node under its own address.

    Keys that are no number of a node are left out.
    """
    found = []
    for node, peers in passed.items():
        for peer, milliseconds in peers.items():
            if not _is_number(node) or not (peer == MASTER or _is_number(peer)):
                continue
            what, number = (MASTER, 0) if peer == MASTER else (RESPONDER, int(peer))
            there = check_ins.get(number)
            address, port = (there.address, there.ports.get(what, 0)) if there else ("", 0)
            rtt, mtu, *_ = [*links.get(node, {}).get(peer, []), 0, 0]
            path = (int(node), number, address, port, what)
            found.append(MeshResult(*path, "ok", "", milliseconds / 1000, rtt or None, mtu or None))
    return found


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10
