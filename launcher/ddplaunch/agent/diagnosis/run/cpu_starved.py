"""The rule on a rank that computes and gets no CPU: its cgroup's quota is used up, or others have the CPUs.

A rank that loops for ever on a full machine looks alike: so the rule wants a rank that has had less CPU since
its last progress than a few of its usual steps take.
"""

from __future__ import annotations

from statistics import median
from typing import Optional

from ddplaunch.agent.contract import Process
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.job_view import Found, JobView
from ddplaunch.agent.diagnosis.run.location import IN_LOADER
from ddplaunch.agent.diagnosis.run.waiting import (
    STARVED,
    confidence_in,
    holder_facts,
    others,
    starved,
    verdict_on,
)
from ddplaunch.agent.system import phrases, subjects

_LESS = 3.0
"""A starved process has waited for a CPU so many times as long as it has had one."""
_STEPS = 3.0
"""Usual steps whose time on a CPU a starved rank has not had yet."""
_MUCH = 0.1
"""CPUs from which on a child process is named."""
_QUOTA = (
    "The cgroup of {who} may use {limit:g} CPUs, and {threads} threads share them. Ask for more "
    "(`resources.cpus`), or start fewer threads: OMP_NUM_THREADS, torch.set_num_threads(), num_workers."
)
_CROWD = (
    "Other processes have the CPUs of {node}: end what does not belong there, ask for a node of your own, or "
    "let ranks times threads (OMP_NUM_THREADS, num_workers) be no more than its CPUs."
)


def cpu_starved(view: JobView) -> Optional[Found]:
    """Stragglers, or the loader's workers that they wait for, that are runnable and do not run."""
    found = {
        number: process
        for number in view.stragglers
        if number not in view.explained and (process := _starving(view, number)) is not None
    }
    if not found:
        return None
    ranks = sorted(found)
    parts = [_part(view, number, found[number]) for number in ranks]
    verdict = verdict_on(
        view,
        "cpu-starved",
        ranks,
        f"{'; '.join(parts[:3])}{others(view, ranks)}",
        [*_crowd(view, ranks[0], found[ranks[0]]), *holder_facts(view, ranks)],
        _hint(view, ranks[0], found[ranks[0]]),
        min(confidence_in(view, ranks), 0.9),
    )
    return Found(verdict, ranks)


def _starving(view: JobView, number: int) -> Optional[Process]:
    rank = view.ranks[number]
    if rank.process is None:
        return None
    usual = median(rank.step_times[-8:]) if rank.step_times else view.evidence.notice_after
    suspects = [rank.process]
    if view.locations[number].kind == IN_LOADER:
        at_work = [
            child for child in rank.children if stacks.worker_task(stacks.main(child.stacks)) is not None
        ]
        suspects = at_work or suspects
    starving = [each for each in suspects if _starves(each) and each.ran * rank.stuck_for <= _STEPS * usual]
    return starving[0] if len(starving) == len(suspects) else None


def _starves(process: Process) -> bool:
    return process.delayed >= max(STARVED, _LESS * process.ran) and process.state == "R"


def _crowd(view: JobView, number: int, process: Process) -> list[str]:
    """Return who has the CPUs, unless a quota is used up: other programs, also of the rank itself."""
    if _is_throttled(process):
        return []
    node = view.nodes[view.node_of[number]]
    own = [each for each in view.ranks[number].children if each.role != "loader" and each.cpu_share >= _MUCH]
    named = [(f"{view.node(node.node)}, not of this job", each) for each in node.busiest]
    named += [(f"started by rank {number}", each) for each in own[:3]]
    return [
        f"{who}: pid {each.pid} ({phrases.clipped(each.command, 60)}) uses {each.cpu_share:.1f} CPUs"
        for who, each in named
    ]


def _part(view: JobView, number: int, process: Process) -> str:
    """'rank 5 is runnable and throttled 92 % of the time (limit 2 CPUs, 64 threads), in step (t.py:40)'."""
    own = process is view.ranks[number].process
    who = f"rank {number}" if own else f"rank {number}'s DataLoader worker {process.pid}"
    location = view.locations[number]
    site = f", in {location}" if location.site is not None else ""
    return f"{who} is runnable and {starved(process)}{site}"


def _is_throttled(process: Process) -> bool:
    return (process.throttled or 0.0) >= STARVED and bool(process.cpu_limit)


def _hint(view: JobView, number: int, process: Process) -> str:
    if not _is_throttled(process):
        return _CROWD.format(node=view.node(view.node_of[number]))
    return _QUOTA.format(who=subjects.ranks([number]), limit=process.cpu_limit, threads=process.threads)
