"""Rules about who is who: each node claims a place of its own in one and the same job. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones
from ddplaunch.agent.system import phrases


def duplicate_rank(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on pairs of processes that claim to be the same node."""
    for stray in view.strays:
        first = view.check_ins.get(stray.node)
        if first is not None:
            yield Verdict(
                "rank-duplicate",
                f"two agents claim to be {view.node(stray.node)}: pid {first.pid} on {first.host} and "
                f"pid {stray.pid} on {stray.host}",
                "gate",
                nodes=[stray.node],
                facts=[f"checked in first: {first.host} at {first.address}", f"second: {stray.host}"],
                hint="each node needs its own index from 0; a node's index must not be given to two machines",
            )


def differing_sizes(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on nodes that were started for other numbers of nodes, or of ranks."""
    claims = [*view.check_ins.values(), *(s for s in view.strays if s.node not in view.check_ins)]
    sizes = {c.node: (c.nodes, c.nproc_per_node) for c in claims}
    if not sizes:
        return
    right, odd = odd_ones(sizes)
    for size, who in odd.items():
        ranks = f" x {size[1]}" if size[1] != right[1] else ""
        right_ranks = f" x {right[1]}" if ranks else ""
        yield Verdict(
            "world-size-differs",
            f"{view.nodes(who)} {phrases.one_or(who, 'was', 'were')} started for {_count(size[0])}{ranks}, "
            f"{view.rest(sizes, [n for who in odd.values() for n in who])} "
            f"for {_count(right[0])}{right_ranks}",
            "gate",
            nodes=who,
            facts=[
                f"{view.node(node)}: {n} nodes x {per or '?'}" for node, (n, per) in sorted(sizes.items())
            ],
            hint="start all nodes from the same job file",
        )


def _count(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
