"""Chooses the paths that each node tries: all pairs in a small job, few per node in a large one. Pure."""

from __future__ import annotations

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshTask
from ddplaunch.agent.diagnosis.gate import paths

ALL_PAIRS = 32
"""Nodes up to which everybody tries everybody: 31 probes a node take less than a second."""
_PACE = 1000
"""Nodes a second that come to node 0's master port: it answers one in 0.8 ms, and none waits 3 s for that."""
_BLOCKS = 16
"""Other blocks that each node tries, at most."""


def block(nodes: int) -> int:
    """Length of the runs of nodes, from multiples of it, of which every two try each other: a rack, say.

    Of any two runs of nodes that are twice as long, wherever they begin, the same is true.
    """
    size = 1
    while nodes > ALL_PAIRS and _BLOCKS * size * size < nodes:
        size *= 2
    return size


def partners(nodes: int) -> list[set[int]]:
    """Return for each node the nodes that it tries. Every path is tried in both directions.

    Above ALL_PAIRS these are at most 2 log2(nodes) + _BLOCKS. Node i tries i ± 2**k around the ring: by
    those steps any node leads to any other, so that what parts the job in two lies across some of them.
    And as the q-th node of block p it tries block q, and every `size`-th after it, at place p likewise: those
    of one block share the others out among themselves, so that two racks cannot be parted unseen.
    """
    if nodes <= ALL_PAIRS:
        return [set(range(nodes)) - {node} for node in range(nodes)]
    found: list[set[int]] = [set() for _ in range(nodes)]
    size = block(nodes)
    for node in range(nodes):
        which, place = divmod(node, size)
        others = set(range(place * size + which % size, nodes, size * size))
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
    """Return each node's tasks. All try node 0's master port, under the name that the trainer will use.

    Without a master port it is node 0's other port. In a large job node 0 does not try everybody in return.
    """
    responders = {
        node: MeshTask(node, addresses[node], check_in.ports[paths.RESPONDER], paths.RESPONDER)
        for node, check_in in check_ins.items()
    }
    master_port = check_ins[0].ports.get(paths.MASTER)
    found: dict[int, list[MeshTask]] = {}
    for node, others in enumerate(partners(plan.nodes)):
        if master_port is None and node != 0:
            others.add(0)
        found[node] = [responders[peer] for peer in sorted(others)]
        if master_port is not None:
            named = check_ins[node].facts.get("names", {}).get("master") or plan.master_addr
            after = node / _PACE if plan.nodes > ALL_PAIRS else 0.0
            found[node].append(MeshTask(0, named or addresses[0], master_port, paths.MASTER, after))
    return found
