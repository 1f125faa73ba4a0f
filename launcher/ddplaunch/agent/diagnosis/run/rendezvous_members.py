"""Rules about ranks that meet and disagree: on world size, rank numbers, address, or backend. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import rendezvous_calls as calls
from ddplaunch.agent.diagnosis.run.call_records import ADDRESS, PORT, Call, line
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.rendezvous_master import DELETE_BOTH
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text import ranges


def rank_twice(view: JobView) -> Optional[Verdict]:
    """Two living processes that meet claim one rank."""
    for group in calls.by_place(view, view.open_init_calls).values():
        if group[0].made.file and len(calls.by_machine(view, group)) > 1:
            continue  # of one path on two machines there may be two files
        claims: dict[int, list[Call]] = {}
        for call in group:
            claims.setdefault(call.rank, []).append(call)
        twice = {rank: same for rank, same in claims.items() if len(calls.at_one_time(same)) > 1}
        if not twice:
            continue
        rank, same = min(twice.items())
        who = ranges.listing([f"pid {call.process.pid} on {view.node(call.node)}" for call in same[:3]])
        local = all(call.rank == call.process.local_rank for each in twice.values() for call in each)
        spread = len({call.node for call in same}) == len(same)
        reason = "; LOCAL_RANK counts from 0 on every node" if local and spread else ""
        return calls.verdict(
            view,
            "rank-duplicate",
            [call for each in twice.values() for call in each],
            f"{subjects.ranks(twice)} {phrases.one_or([*twice], 'is', 'are')} claimed twice: rank {rank} "
            f"by {who}{phrases.at(same[0].made.frame)}{reason}",
            "Take the rank from RANK, which counts over all nodes; LOCAL_RANK only chooses the device.",
        )
    return None


def sizes_differ(view: JobView) -> Optional[Verdict]:
    """Ranks that meet, each waiting for another number of them."""
    for group in calls.by_place(view, view.open_init_calls).values():
        counts = Counter(call.world_size for call in group if call.world_size is not None)
        if len(counts) < 2:
            continue
        right = calls.usual(counts, view.evidence.world_size)
        wrong = [call for call in group if call.world_size not in (right, None)]
        first = wrong[0]
        like_it = [call.rank for call in wrong if call.world_size == first.world_size]
        others = f"the others with {right}" if right is not None else "others with another"
        return calls.verdict(
            view,
            "world-size-differs",
            wrong,
            f"{subjects.ranks(like_it)} {phrases.one_or(like_it, 'calls', 'call')} "
            f"init_process_group with world size {first.world_size}{phrases.at(first.made.frame)}, {others}",
            "Give every rank the same world_size, or leave it out: torchrun sets WORLD_SIZE.",
            calls.PROVEN if right is not None else 0.5,
        )
    return None


def places_differ(view: JobView) -> Optional[Verdict]:
    """Ranks of one world that go to different addresses or ports."""
    groups = calls.by_place(view, view.open_init_calls)
    if len(groups) < 2 or calls.overlap(groups.values()):
        return None
    if any(calls.could_be_a_job_of_its_own(view, group) for group in groups.values()):
        return None
    counts = Counter({place: len(group) for place, group in groups.items()})
    unchanged = {place for place, group in groups.items() if not all(call.is_chosen for call in group)}
    right = calls.usual(counts, unchanged.pop() if len(unchanged) == 1 else None)
    wrong = [call for place, group in groups.items() if place != right for call in group]
    first = wrong[0]
    name = PORT if first.changed(PORT) is not None else ADDRESS
    theirs = f", the others go to {groups[right][0].endpoint}" if right is not None else ""
    return calls.verdict(
        view,
        "rendezvous-overridden" if first.is_chosen else "environment-differs",
        wrong,
        f"rank {first.rank} goes to {first.endpoint} ({first.choice(name)})"
        f"{theirs or ', each rank to another place'}",
        DELETE_BOTH if first.is_chosen else "Give all nodes the same MASTER_ADDR and MASTER_PORT.",
        calls.PROVEN if right is not None else 0.5,
    )


def backends_differ(view: JobView) -> Optional[Verdict]:
    """Ranks that meet, and ask for different backends."""
    for group in calls.by_place(view, view.open_init_calls).values():
        counts = Counter(call.made.backend for call in group if call.made.backend)
        if not any(a.isdisjoint(b) for a, b in combinations(map(_kinds, counts), 2)):
            continue
        right = calls.usual(counts, None)
        wrong = [call for call in group if call.made.backend not in (right, "")]
        first = wrong[0]
        return calls.verdict(
            view,
            "environment-differs",
            wrong,
            f"{subjects.ranks({call.rank for call in wrong})} {phrases.one_or(wrong, 'asks', 'ask')} for "
            f"backend {first.made.backend}{phrases.at(first.made.frame)}, the others "
            f"for {right or 'another'}",
            "Every rank must ask for the same backend.",
            calls.PROVEN if right is not None else 0.5,
        )
    return None


def _kinds(backend: str) -> set[str]:
    """'cpu:gloo,cuda:nccl' -> gloo and nccl: ranks that share one meet by it."""
    return {each.rpartition(":")[2] for each in backend.lower().split(",")}


def too_few(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a job whose ranks have all called, and wait for more than there are."""
    waiting = view.open_init_calls
    seen = {call.rank for call in waiting}
    size = waiting[0].world_size
    if size is None or seen != set(range(view.evidence.world_size or 0)) or size <= len(seen):
        return None
    return calls.verdict(
        view,
        "world-size-differs",
        waiting,
        f"{line(waiting[0].made.frame)} calls init_process_group with world size {size}; the job has "
        f"{len(seen)} rank{'s' * (len(seen) > 1)}, and all of them wait there",
        "Leave world_size out, or take it from WORLD_SIZE, which the launcher sets.",
        calls.LIKELY,
    )


def other_script(view: JobView) -> Optional[Verdict]:
    """Rules one node that runs another file than the others."""
    waiting = view.open_init_calls
    counts = Counter(call.made.script for call in waiting if call.made.script)
    right = calls.usual(counts, None)
    wrong = [call for call in waiting if call.made.script not in (right, "")]
    if len(counts) < 2 or right is None or not wrong:
        return None
    ranks = [call.rank for call in wrong]
    return calls.verdict(
        view,
        "environment-differs",
        wrong,
        f"{subjects.ranks(ranks)} {phrases.one_or(ranks, 'runs', 'run')} another version of the program's "
        "main file than the others, and all wait in init_process_group",
        "Give all nodes the same file: `source` in the job file carries it to each of them.",
        0.7,
    )
