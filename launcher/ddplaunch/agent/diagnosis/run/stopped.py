"""Rules about ranks that something outside has stopped: a signal, a debugger, a frozen cgroup."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Process, Verdict
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases, subjects

_SIGNAL = "by a signal (SIGSTOP or SIGTSTP)"
_DEBUGGER = "by a debugger"
_FREEZER = "in a frozen cgroup"
_FROZEN = ("__refrigerator", "do_freezer_trap")
"""Where the kernel keeps a frozen process, by cgroup v1 and v2."""
_HINTS = {
    _SIGNAL: "A person, a job-control shell or the scheduler stops processes so. "
    "`kill -CONT {pid}` on {node} lets it go on.",
    _DEBUGGER: "Let the debugger continue or detach: `grep TracerPid /proc/{pid}/status` on {node} names it.",
    _FREEZER: "A container runtime or a scheduler has frozen it: `cat /proc/{pid}/cgroup` on {node} names "
    "the group; unpause the container, or resume the job.",
}


def rank_stopped(view: JobView) -> Optional[Verdict]:
    """Living ranks that cannot run, wherever they stand, while nothing moves."""
    found = {rank: how for rank in view.alive if (how := how_stopped(view.ranks[rank].process))}
    if not found:
        return None
    first = min(found)
    same = [rank for rank, how in found.items() if how == found[first]]
    node = view.node(view.node_of[first])
    location = view.locations[first]
    place = f", in {location}" if location.site is not None else ""
    victims = [rank for rank in view.victims_of(sorted(found)) if rank in view.waiting]
    facts = [f"rank {rank}: process {view.ranks[rank].pid} is stopped {how}" for rank, how in found.items()]
    return view.verdict(
        code="rank-stopped",
        sentence=f"{subjects.ranks(same)} {phrases.one_or(same, 'is', 'are')} stopped {found[first]} on "
        f"{view.named(view.nodes_of(same))}{place}",
        ranks=sorted(found),
        victims=victims,
        confidence=0.95,
        facts=[*facts[:4], *view.counts()],
        hint=_HINTS[found[first]].format(pid=view.ranks[first].pid, node=node),
    )


def how_stopped(process: Optional[Process]) -> str:
    """'by a signal (SIGSTOP or SIGTSTP)'; empty when it may run."""
    if process is None or process.cpu_share >= 0.1:
        return ""
    if process.state == "T":
        return _SIGNAL
    if process.state == "t":
        return _DEBUGGER
    frozen = process.wchan.partition(".")[0] in _FROZEN
    return _FREEZER if frozen else ""
