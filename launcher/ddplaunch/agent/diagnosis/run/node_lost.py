"""Rules about a node that no longer answers. What its peers report afterwards follows from that."""

from __future__ import annotations

import time
from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Lost, Verdict
from ddplaunch.agent.diagnosis.run.causes import TOGETHER, causes_of, complaint
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases


def network_lost(view: JobView) -> Optional[Verdict]:
    """Nodes that answer no more, unless a rank had ended by a fault of its own before they fell silent."""
    lost = view.evidence.lost
    if not lost or any(cause.at < min(each.at for each in lost) - TOGETHER for cause in causes_of(view)):
        return None
    nodes = [each.node for each in lost]
    there = [rank for rank in view.ranks if view.node_of[rank] in nodes]
    dead = [number for number, rank in view.ranks.items() if not rank.alive and number not in there]
    return Verdict(
        code="network-lost",
        sentence=f"{view.named(nodes)} {_what(lost)}",
        where="run",
        nodes=nodes,
        victims=view.victims_of(there),
        confidence=0.8 if _frozen(lost) else 0.9,
        facts=[
            *(_last_word(view, each) for each in lost[:8]),
            *(f"rank {number}: {complaint(view.ranks[number])}" for number in dead[:8]),
            *view.counts(),
        ],
        hint=_FROZEN if _frozen(lost) else platforms.named(view.evidence.platform).hint("lost", _GONE),
    )


_GONE = (
    "See whether the node is up and its network works (power, cable, switch port), and whether the "
    "scheduler, a person or the kernel, for memory, has ended its part of the job."
)
_FROZEN = (
    "See whether the machine, its container or the job's cgroup is paused or suspended, or whether it swaps; "
    "when it goes on, so does the job."
)


def _frozen(lost: list[Lost]) -> bool:
    return all(each.frozen for each in lost)


def _what(lost: list[Lost]) -> str:
    at = _clock(lost[0].at)
    if _frozen(lost):
        has, its = ("have", "their") if len(lost) > 1 else ("has", "its")
        kernels, confirm = ("kernels", "confirm") if len(lost) > 1 else ("kernel", "confirms")
        return (
            f"{has} said nothing since {at}, but {its} {kernels} still {confirm} what is sent there: "
            f"{its} processes are frozen or starved"
        )
    if all(each.closed for each in lost):
        return f"went away{'' if len(lost) > 1 else ': its agent ended without a word'} at {at}"
    return f"stopped answering at {at}"


def _last_word(view: JobView, lost: Lost) -> str:
    if lost.closed:
        how = "its connection was closed"
    elif lost.frozen:
        how = "its kernel still confirms what is sent to it"
    else:
        how = "not even its kernel confirms what is sent to it"
    done = f", {lost.completed} collectives done by its ranks together" if lost.completed else ""
    span = phrases.span(max(view.evidence.at - lost.at, 0.0))
    return f"{view.node(lost.node)} was last heard {span} ago{done}; {how}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
