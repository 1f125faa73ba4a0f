"""Chooses the paths that each node tries: all pairs in a small job, a few per node in a large one. Pure.

`gate` calls it once, when all nodes have checked in.
"""

from __future__ import annotations

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshTask
from ddplaunch.agent.diagnosis.gate import paths

ALL_PAIRS = 32
"""Up to this many nodes, all pairs are tried: 31 probes by a node take less than a second."""
_PACE = 1000
"""Nodes that try node 0's master port in one second. It answers one in 0.8 ms, and no probe waits 3 s for
that."""
_BLOCKS = 16
"""The most other blocks that each node tries."""


def block(nodes: int) -> int:
    """Return the length of a block of consecutive nodes, such as a rack.

    Paths are tried between any two blocks. Blocks begin at multiples of this length. Between two runs of
    nodes that are twice as long, paths are tried wherever the runs begin.
    """
    size = 1
    while nodes > ALL_PAIRS and _BLOCKS * size * size < nodes:
        size *= 2
    return size


def partners(nodes: int) -> list[set[int]]:
    """Return, for each node, the nodes that it tries. Every path is tried in both directions.

    Above ALL_PAIRS these are at most 2 log2(nodes) + _BLOCKS. Node i tries i ± 2**k around the ring. Such
    steps lead from any node to any other, so a cut between two halves of the job breaks some of them. The
    q-th node of block p also tries the p-th node of block q, and of every `size`-th block after it. So the
    nodes of a block share the other blocks among them, and a cut between two racks is seen.
    """
    if nodes <= ALL_PAIRS:
        return [set(range(nodes)) - {node} for node in range(nodes)]
    result: list[set[int]] = [set() for _ in range(nodes)]
    size = block(nodes)
    for node in range(nodes):
        which, place = divmod(node, size)
        others = set(range(place * size + which % size, nodes, size * size))
        step = 1
        while step < nodes:
            others.add((node + step) % nodes)
            step *= 2
        for other in others - {node}:
            result[node].add(other)
            result[other].add(node)
    return result


def tasks(
    plan: JobPlan, check_ins: dict[int, CheckIn], addresses: dict[int, str]
) -> dict[int, list[MeshTask]]:
    """Return each node's tasks. All nodes try node 0's master port, under the name that the trainer will use.

    Without a master port they try node 0's other port. In a large job, node 0 does not try all nodes in
    return.
    """
    responders = {
        node: MeshTask(node, addresses[node], check_in.ports[paths.RESPONDER], paths.RESPONDER)
        for node, check_in in check_ins.items()
    }
    master_port = check_ins[0].ports.get(paths.MASTER)
    result: dict[int, list[MeshTask]] = {}
    here = sorted(check_ins)
    for node, others in zip(here, partners(len(here))):
        if master_port is None and node != 0:
            others.add(0)
        result[node] = [responders[here[place]] for place in sorted(others)]
        if master_port is not None:
            named = check_ins[node].facts.get("names", {}).get("master") or plan.master_addr
            after = node / _PACE if plan.nodes > ALL_PAIRS else 0.0
            result[node].append(MeshTask(0, named or addresses[0], master_port, paths.MASTER, after))
    return result
