"""Calls of init_process_group: by which rank, to which address, chosen by which setting. Pure.

Two calls lead to the same place when their connections end on the same machine and port, by whatever name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, TypeVar

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run.call_records import Call
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

_T = TypeVar("_T")

Place = tuple[str, Optional[int]]
"""A machine, or an address that no node of the job has, and a port; a file has no port."""

PROVEN, LIKELY = 0.97, 0.85
"""How sure a verdict is that the calls alone prove, and one that also needs that nothing has moved since."""


def place(view: JobView, call: Call) -> Optional[Place]:
    """Return where the call leads; None where that is not known."""
    if call.made.file:
        return f"file {call.made.file}", None
    machine = leads_to(view, call)
    if machine is None:
        return None
    return machine or f"address {min(call.addresses)}", call.made.port


def leads_to(view: JobView, call: Call) -> Optional[str]:
    """Return the machine on which the call's connections end; "": none of the job's; None: not known."""
    if not call.by_network or not call.addresses:
        return None
    if call.loops_back:
        return view.nodes[call.node].machine or None
    for node in view.nodes.values():
        if set(node.addresses) & set(call.addresses):
            return node.machine or None
    known = len(view.nodes) == view.evidence.nodes and all(node.addresses for node in view.nodes.values())
    return "" if known else None


def machines(view: JobView) -> set[str]:
    """Return the machines of all known nodes, with "" for a node whose machine is not known."""
    return {node.machine for node in view.nodes.values()}


def could_be_a_job_of_its_own(view: JobView, group: list[Call]) -> bool:
    """Whether these calls, with the processes beside them that wait nowhere else, may make a whole world."""
    homes = {view.nodes[call.node].machine for call in group}
    elsewhere = {(call.node, call.process.pid) for call in view.open_init_calls if call not in group}
    beside = [
        process
        for node in view.nodes.values()
        for process in node.ranks
        if node.machine in homes and (node.node, process.pid) not in elsewhere
    ]
    return any(call.world_size is None or call.world_size <= len(beside) for call in group)


def verdict(
    view: JobView,
    code: str,
    astray: Sequence[Call],
    sentence: str,
    hint: str,
    confidence: float = PROVEN,
) -> Verdict:
    """Return a verdict on the ranks whose calls are `astray`; its facts are all calls."""
    ranks = sorted({call.rank for call in astray})
    made = [f"{subjects.ranks(who)}: {what}" for what, who in _grouped(view).items()]
    return Verdict(
        code=code,
        sentence=sentence,
        where="run",
        nodes=sorted({call.node for call in astray}),
        ranks=ranks,
        victims=[rank for rank in view.victims_of(ranks) if rank not in ranks],
        confidence=confidence,
        facts=made[:4] + ([f"and {len(made) - 4} more calls"] if len(made) > 4 else []),
        hint=hint,
    )


def _grouped(view: JobView) -> dict[str, list[int]]:
    """'init_process_group (train.py:12) by n1:29500, world size 4' -> the ranks that call so."""
    found: dict[str, list[int]] = {}
    for call in view.init_calls:
        size = "" if call.world_size is None else f", world size {call.world_size}"
        resolved = [address for address in call.made.resolved if address != call.made.address]
        leads = f" ({', '.join(resolved[:2])})" if resolved else ""
        by = f"{call.endpoint or call.made.method}{leads}"
        text = f"init_process_group{phrases.at(call.made.frame)} by {by}{size}"
        found.setdefault(text, []).append(call.rank)
    return found


def proved(view: JobView) -> str:
    """'; the job's master is n1', as the gate has proved it."""
    address = view.evidence.master_addr
    return f"; the job's master is {address}" if address else ""


def usual(counts: Mapping[_T, int], wanted: Optional[_T]) -> Optional[_T]:
    """`wanted` where a call has it, else what most have; None when two are as frequent."""
    if wanted in counts:
        return wanted
    ordered = sorted(counts, key=lambda value: -counts[value])
    tie = len(ordered) > 1 and counts[ordered[0]] == counts[ordered[1]]
    return ordered[0] if ordered and not tie else None


def home(view: JobView, machine: Optional[str]) -> str:
    """'node 1 (n2)': the nodes on this machine."""
    return view.named([node.node for node in view.nodes.values() if node.machine == machine])


def home_of_store(view: JobView) -> Optional[str]:
    """Return the machine with the store: torchrun's first node, or where rank 0 runs; None: not known."""
    for call in view.init_calls:
        if call.made.agent_store:
            first = view.nodes.get(0)
            return (first.machine or None) if first is not None else None
    homes = {view.nodes[call.node].machine for call in view.init_calls if call.rank == 0}
    return (homes.pop() or None) if len(homes) == 1 else None


def by_machine(view: JobView, group: Sequence[Call]) -> dict[str, list[Call]]:
    """Calls by the machine on which they are made."""
    found: dict[str, list[Call]] = {}
    for call in group:
        found.setdefault(view.nodes[call.node].machine, []).append(call)
    return found


def by_place(view: JobView, group: Sequence[Call]) -> dict[Place, list[Call]]:
    """Calls that lead to places that are known."""
    found: dict[Place, list[Call]] = {}
    for call in group:
        where = place(view, call)
        if where is not None:
            found.setdefault(where, []).append(call)
    return found


def overlap(groups: Iterable[Sequence[Call]]) -> bool:
    """Whether two of the groups claim one rank: then each may be a job of its own."""
    seen: set[int] = set()
    for group in groups:
        ranks = {call.rank for call in group}
        if seen & ranks:
            return True
        seen |= ranks
    return False


def at_one_time(same: list[Call]) -> list[Call]:
    """Return the calls without processes that had ended before another called: a restart replaced them."""
    return [
        call
        for call in same
        if call.process.exit is None or all(call.process.exit.at > other.made.at for other in same)
    ]
