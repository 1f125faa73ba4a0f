"""Reads what NCCL's RAS says about a hang: how many operations of each kind each rank has launched. Pure.

It decides only about ranks whose counters torch does not show. The ranks that RAS lists may be those ahead
(nccl#1911), "OK" only means equal counts (nccl#1730), and a rank that does not answer may have done its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Fact, NodeEvidence, Ras, RasCount, RasRank, Source, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.system import phrases, subjects

if TYPE_CHECKING:
    from ddplaunch.agent.diagnosis.run.view import JobView

_SHOWN = 4
Place = tuple[str, int]


def behind(nodes: Sequence[NodeEvidence]) -> dict[int, bool]:
    """Return by rank whether it has launched fewer operations than others of its communicators.

    Ranks that are ahead in one and behind in another are left out, and so are ranks that NCCL does not name.
    """
    ranks = _ranks(nodes)
    most: set[int] = set()
    fewer: set[int] = set()
    for ras in _answers(nodes):
        for each in ras.communicators:
            for same in each.counts:
                highest = max(other.count for other in each.counts if other.op == same.op)
                its = most if same.count == highest else fewer
                its.update(ranks[place] for place in map(_place, same.ranks) if place in ranks)
    return {rank: rank in fewer for rank in most ^ fewer}


def with_facts(view: JobView, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts with what NCCL says, if it says anything."""
    word = facts(view)
    return [each.with_facts(word) for each in verdicts]


def facts(view: JobView) -> list[Fact]:
    """Return what NCCL says, as facts."""
    nodes = list(view.nodes.values())
    ranks = _ranks(nodes)
    source = Source("NCCL's RAS", "the job", "ras of node 0 in bundle.json")
    return [Fact(text, source) for ras in _answers(nodes) for text in _facts(ras, ranks)]


def doubted(view: JobView, verdict: Verdict) -> Verdict:
    """Return a verdict on ranks for which others wait, less sure if NCCL has seen them get as far as any."""
    ahead = [rank for rank in verdict.ranks if view.launched.get(rank) is False]
    if not ahead:
        return verdict
    fact = f"NCCL RAS contradicts: no rank has launched more than {subjects.ranks(ahead)}"
    sure_of_it = min(verdict.confidence, sure.NCCL_CONTRADICTS)
    return replace(verdict.with_facts([fact]), confidence=sure_of_it)


def differ(view: JobView) -> bool:
    """Whether ranks of a communicator have not launched equally many operations."""
    return any(each.counts for ras in _answers(view.nodes.values()) for each in ras.communicators)


def _answers(nodes: Iterable[NodeEvidence]) -> list[Ras]:
    return [node.ras for node in nodes if node.ras is not None]


def _place(rank: RasRank) -> Place:
    return rank.host, rank.pid


def _ranks(nodes: Iterable[NodeEvidence]) -> dict[Place, int]:
    """Return ranks by address and pid, without those that share both with another rank."""
    found: dict[Place, set[int]] = {}
    for node in nodes:
        for rank in node.ranks:
            pid = rank.process.pid if rank.process else rank.pid
            for address in node.addresses:
                found.setdefault((address, pid), set()).add(rank.rank)
    return {place: next(iter(its)) for place, its in found.items() if len(its) == 1}


def _facts(ras: Ras, ranks: dict[Place, int]) -> list[str]:
    facts = []
    for one in ras.communicators[:_SHOWN]:
        parts = [_launched(each, ranks) for each in one.counts[:_SHOWN]]
        if one.silent:
            parts.append(f"{_who(one.silent, ranks)} did not answer NCCL")
        if parts:
            facts.append(f"NCCL RAS: communicator {one.name}: {', '.join(parts)}")
    if ras.dead:
        facts.append(f"NCCL RAS counts as dead: {', '.join(ras.dead[:_SHOWN])}")
    if ras.total and not ras.communicators and not ras.dead:
        facts.append(f"NCCL RAS: equal counts of launched operations in all its communicators ({ras.total})")
    return facts


def _launched(same: RasCount, ranks: dict[Place, int]) -> str:
    who = _who(same.ranks, ranks) if same.ranks else f"{same.size} ranks"
    return f"{who} at {same.op or 'operation'} {same.count}"


def _who(its: Sequence[RasRank], ranks: dict[Place, int]) -> str:
    """Return 'ranks 2 and 3'; 'its rank 0', by the communicator's numbers, if not all are found."""
    known = [ranks[place] for place in map(_place, its) if place in ranks]
    if len(set(known)) == len(its):
        return phrases.ranks(known)
    return f"its {subjects.ranks(each.rank for each in its)}"
