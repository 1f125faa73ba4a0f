"""Which node tries which: all pairs while that is cheap, else few per node that still cover all. Pure."""

from __future__ import annotations

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshTask

ALL_PAIRS = 32
"""Nodes up to which everybody tries everybody: 31 probes a node take less than a second."""


def partners(nodes: int) -> list[set[int]]:
    """For each node, whom it tries. Symmetric, so that every path is tried in both directions.

    Above ALL_PAIRS: node 0 with everybody, since all of them need it, and for the rest node i with i ± 2**k
    around the ring. Those steps reach any node from any other in log2(n) hops, so that a cut anywhere shows.
    """
    if nodes <= ALL_PAIRS:
        return [set(range(nodes)) - {node} for node in range(nodes)]
    found: list[set[int]] = [set() for _ in range(nodes)]
    for node in range(nodes):
        others = {0}
        step = 1
        while step < nodes:
            others.add((node + step) % nodes)
            step *= 2
        for other in others - {node}:
            found[node].add(other)
            found[other].add(node)
    return found


def tasks(
    plan: JobPlan, check_ins: dict[int, CheckIn], addresses: dict[int, str]
) -> dict[int, list[MeshTask]]:
    """By node. The master port is tried by everybody, under the name the trainer will use."""
    found: dict[int, list[MeshTask]] = {}
    master_port = check_ins[0].ports.get("master")
    for node, others in enumerate(partners(plan.nodes)):
        found[node] = [
            MeshTask(peer, addresses[peer], check_ins[peer].ports["responder"], "responder")
            for peer in sorted(others)
        ]
        if master_port is not None:
            named = check_ins[node].facts.get("names", {}).get("master") or plan.master_addr
            found[node].append(MeshTask(0, named or addresses[0], master_port, "master"))
    return found
