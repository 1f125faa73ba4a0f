"""Finds the records from which a fact of a verdict was made: collector, ranks, and place in the bundle.

A fact is text by now. The functions that make facts are asked again what they say of each record: the one
whose answer is the fact is its source. A fact that none of them makes has no source here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import call_records, collectives, devices, ends, mpi, nccl_ras, stragglers
from ddplaunch.agent.diagnosis.run.view import ENDED, JobView
from ddplaunch.agent.text.mentions import filled
from ddplaunch.agent.text.printable import printable
from ddplaunch.report.words import some

_COUNTERS = "torch's process groups"
_SOURCE_LINES = "the program's source"
_CALLS = "torch's flight recorder and the hook's ring"
_RING = "the hook's ring"
_SHM = "the size of shared memory"
_GPUS = "the kernel's log and nvidia-smi"
_MOST = 16
"""The most culprits of which each is asked for; a rule has facts on fewer."""


class FactSource(NamedTuple):
    """The records of a fact. `file`: the place in the bundle."""

    collector: str
    of: str
    file: str

    def __str__(self) -> str:
        return f"{self.collector} of {self.of}; {self.file}"


def of(view: JobView, verdict: Verdict) -> dict[str, FactSource]:
    """Return the source of each fact of which one is known."""
    wanted = set(verdict.facts)
    found: dict[str, FactSource] = {}
    for text, source in _made(view, verdict):
        fact = printable(filled(text))
        if fact in wanted:
            found.setdefault(fact, source)
    return found


def _made(view: JobView, verdict: Verdict) -> Iterator[tuple[str, FactSource]]:
    """Yield what the functions that make facts say of this evidence, each with its records."""
    for text, ranks in view.counted():
        yield text, FactSource(_COUNTERS, some("rank", ranks), _file(view, ranks, "groups"))
    mismatch = collectives.find_mismatch(view)
    for text, ranks in zip(mismatch.facts, mismatch.camps.values(), strict=True) if mismatch else ():
        yield text, FactSource(_CALLS, some("rank", ranks), _file(view, ranks, "collectives, calls"))
    for number in view.nodes:
        where = FactSource(_GPUS, some("node", [number]), f"xids, gpus of node {number} in bundle.json")
        yield from _each(devices.gpu_facts(view, [number]), where)
    yield from _each(
        nccl_ras.facts(view), FactSource("NCCL's RAS", "the job", "ras of node 0 in bundle.json")
    )
    choices = (verdict.victims, view.alive, view.waiting, verdict.ranks, list(view.ranks))
    for ranks in _distinct(its for each in choices for its in _groups(view, each)):
        kinds = {view.ranks[rank].stack_source for rank in ranks} - {""}
        by = f"stacks by {' and '.join(sorted(kinds))}"
        if kinds:
            texts = (
                *view.whereabouts(ranks),
                *stragglers.waiting_facts(view, ranks),
                *mpi.where_in_mpi(view, ranks),
            )
            yield from _each(texts, FactSource(by, some("rank", ranks), _file(view, ranks, "stacks")))
    first = [ranks[0] for ranks in _groups(view, view.waiting)]  # of a thousand that do the same, one
    for rank in _distinct([each] for each in (*verdict.ranks[:_MOST], *first) if each in view.ranks):
        source = FactSource(_SOURCE_LINES, some("rank", rank), _file(view, rank, "lines"))
        yield from _each(view.line_shown(rank[0], view.locations[rank[0]].site), source)
        its = view.ranks[rank[0]]
        yield from _each(
            call_records.last(its), FactSource(_RING, some("rank", rank), _file(view, rank, "calls"))
        )
        shm = FactSource(_SHM, some("node", view.nodes_of(rank)), _file(view, rank, "shm_size, shm_used"))
        yield from _each(ends.shared_memory(view, rank[0]), shm)
        crash = FactSource("the stack by faulthandler", some("rank", rank), _file(view, rank, "stacks"))
        yield from _each(ends.crash(its), crash)
        if its.stack_source:
            by = f"the stack by {its.stack_source}{' and /proc' * (its.process is not None)}"
            held = FactSource(by, some("rank", rank), _file(view, rank, "ranks"))
            yield from _each(stragglers.holder_facts(view, rank), held)


def _each(texts: Iterable[str], source: FactSource) -> Iterator[tuple[str, FactSource]]:
    return ((text, source) for text in texts)


def _groups(view: JobView, ranks: Iterable[int]) -> Iterator[list[int]]:
    """Yield those of these ranks that stand in the same place; of the dead no place is known."""
    known = [rank for rank in ranks if rank in view.ranks and view.locations[rank].kind != ENDED]
    yield from view.groups_of_ranks(known).values()


def _distinct(groups: Iterable[list[int]]) -> Iterable[list[int]]:
    return list({tuple(each): each for each in groups}.values())


def _file(view: JobView, ranks: list[int], field: str) -> str:
    nodes = view.nodes_of(ranks)
    return f"{field} of {some('node', nodes)} in bundle.json"
