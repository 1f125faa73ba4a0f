"""What failed paths between nodes mean. The same failure on many paths is one verdict, on who they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import MeshResult, Verdict
from ddplaunch.agent.verdicts import pods, words

MTU_HINT = (
    "compare `ip link` on both nodes and test with `ping -M do -s 1472`; a tunnel needs a smaller MTU, or "
    "ICMP `fragmentation needed` must be let through"
)
_SHOWN = 20
"""Paths listed in a verdict: a firewall in front of one of 512 nodes breaks a thousand."""

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
    "that does not match, or a link that is overrun",
    "stranger-listens": "something stands between the nodes, a proxy or a service mesh, or the address is "
    "another machine's; exclude the job's ports from it",
}
_EITHER_END = frozenset({"network-one-way", "network-lossy", "mtu-black-hole", "host-unreachable"})
"""Where one failed path does not tell which of its two ends is at fault."""


class _Path(NamedTuple):
    node: int
    peer: int


class _Facts(NamedTuple):
    reached: set[_Path]  # by any port
    unrouted: set[_Path]
    open_ports: dict[_Path, int]  # one that answered
    names: Sequence[str]

    def node(self, number: int) -> str:
        return words.node(number, self.names)

    def peer(self, result: MeshResult) -> str:
        """'node 0 (n1, 10.0.0.5)'."""
        return words.node(result.peer, self.names, result.address)


def judge(results: list[MeshResult], names: Sequence[str] = ()) -> list[Verdict]:
    """Empty when every path passed. `names` are the nodes', as in the plan."""
    facts = _Facts(
        reached={_Path(r.node, r.peer) for r in results if r.outcome == "ok"},
        unrouted={_Path(r.node, r.peer) for r in results if r.outcome == "unreachable"},
        open_ports={_Path(r.node, r.peer): r.port for r in results if r.outcome == "ok"},
        names=names,
    )
    failed = [r for r in sorted(results, key=lambda r: (r.node, r.peer, r.what)) if r.outcome != "ok"]
    lossy = {_Path(r.node, r.peer) for r in failed if r.outcome == "lossy"}
    losers = set(_culprits("network-lossy", lossy, facts)) if lossy else set()
    failures: dict[str, list[MeshResult]] = {}
    for result in failed:
        # Where most packets get lost, all of them do on some path.
        lost = result.outcome in ("timeout", "stalled") and losers & {result.node, result.peer}
        failures.setdefault("network-lossy" if lost else _code(result, facts), []).append(result)
    return [_verdict(code, found, facts) for code, found in sorted(failures.items(), key=_weight)]


def notes(results: list[MeshResult], names: Sequence[str]) -> list[str]:
    """Of paths that pass, but not at the first try."""
    return [
        f"packets are lost between {words.node(result.node, names)} and "
        f"{words.node(result.peer, names, result.address)}: {result.detail}"
        for result in results
        if result.outcome == "ok" and result.detail
    ]


def _weight(entry: tuple[str, list[MeshResult]]) -> tuple[int, str]:
    """The most paths first: what broke many broke the few as well, more often than not."""
    return -len(entry[1]), entry[0]


def _code(result: MeshResult, facts: _Facts) -> str:
    there, back = _Path(result.node, result.peer), _Path(result.peer, result.node)
    if result.outcome == "timeout":
        if back in facts.unrouted:
            return "host-unreachable"  # the peer has no way to answer
        one_way = there not in facts.reached and back in facts.reached
        return "network-one-way" if one_way else "port-filtered"
    if result.outcome == "unreachable" and (there in facts.reached or back in facts.reached):
        return "port-rejected"  # packets find their way; a firewall says by ICMP that these may not
    return {
        "refused": "port-rejected",
        "unreachable": "host-unreachable",
        "stalled": "mtu-black-hole",
        "lossy": "network-lossy",
    }.get(result.outcome, "stranger-listens")


def _verdict(code: str, found: list[MeshResult], facts: _Facts) -> Verdict:
    paths = {_Path(result.node, result.peer) for result in found}
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    shown = [
        f"{_path(result, facts)}: {result.outcome}, {result.detail or 'no answer'}"
        for result in found[:_SHOWN]
    ]
    # How a node fails to reach itself tells least; how it was refused tells more than that it waited.
    worst = min(found, key=lambda r: (r.node == r.peer, r.outcome == "timeout", r.outcome != "lossy"))
    return Verdict(
        code,
        _sentence(code, worst, facts) + more,
        "gate",
        nodes=_culprits(code, paths, facts),
        facts=shown,
        hint=pods.HINTS.get(code, _HINTS[code]) if words.are_pods(facts.names) else _HINTS[code],
    )


def _sentence(code: str, bad: MeshResult, facts: _Facts) -> str:
    path, seconds = _path(bad, facts), f"{bad.seconds:.0f} s"
    if code == "port-rejected":
        how = "" if bad.outcome == "refused" else f" ({bad.detail})"
        return f"{path} is refused{how} although {facts.node(bad.peer)} listens there"
    if code == "network-one-way":
        return (
            f"{facts.node(bad.node)} cannot open connections to {facts.peer(bad)}: no answer in {seconds}; "
            "the reverse works"
        )
    if code == "port-filtered":
        open_port = facts.open_ports.get(_Path(bad.node, bad.peer))
        if open_port is not None:
            return (
                f"{path}: no answer in {seconds} while port {open_port} answers: a firewall drops this port"
            )
        where = "" if bad.node == bad.peer else ", nor the other way round: packets between them vanish"
        return f"{path}: no answer in {seconds}{where}"
    if code == "mtu-black-hole":
        return f"{facts.node(bad.node)} -> {facts.peer(bad)}: 1 kB passes, 64 kB stalls for {seconds}"
    if code == "network-lossy":
        return f"packets are lost between {facts.node(bad.node)} and {facts.peer(bad)}: {bad.detail}"
    if code == "host-unreachable":
        return f"{path}: {bad.detail}"
    return (
        f"what answers {facts.node(bad.node)} on {bad.address} port {bad.port} is not "
        f"{facts.node(bad.peer)}: {bad.detail}"
    )


def _path(result: MeshResult, facts: _Facts) -> str:
    return f"{facts.node(result.node)} -> {facts.peer(result)} port {result.port}"


def _culprits(code: str, paths: set[_Path], facts: _Facts) -> list[int]:
    """The fewest nodes that all failed paths share."""
    if len({frozenset(path) for path in paths}) == 1:
        path = min(paths)
        both = code in _EITHER_END or (code == "port-filtered" and path not in facts.reached)
        return sorted({path.node, path.peer}) if both else sorted({each.peer for each in paths})
    left, culprits = set(paths), []
    while left:
        counts = Counter(node for path in left for node in set(path))
        # At a tie the peer: his is the port that did not answer.
        peers = Counter(path.peer for path in left)
        worst = max(sorted(counts), key=lambda node: (counts[node], peers[node]))
        culprits.append(worst)
        left = {path for path in left if worst not in path}
    return sorted(culprits)
