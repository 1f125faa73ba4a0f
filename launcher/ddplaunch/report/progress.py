"""Shows in lines which node is in which phase, since when, and for whom the job waits. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, JobStatus, Phase, Verdict
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job, State
from ddplaunch.report.words import count, duration, some

_ENDED_BY: dict[int | None, str] = {
    Exit.NODE_AT_FAULT: "by a fault of a node or the network",
    Exit.MISCONFIGURED: "because the job cannot work as it is",
    Exit.WORKER_FAILED: "a worker failed",
    Exit.OUT_OF_MEMORY: "a worker was killed for memory",
    Exit.HANG: "it hung, and was ended",
    Exit.STOPPED: "it was stopped from outside",
    Exit.UNUSABLE: "the agent cannot work here",
}
_IN_PHASE = (Exit.NODE_AT_FAULT, Exit.MISCONFIGURED)
"""Ends that come at the gate and later: nothing was trained, or something was."""


_AT = {
    Phase.GATE: "at the gate",
    Phase.RENDEZVOUS: "in rendezvous",
    Phase.INIT: "in init_process_group",
    Phase.FIRST: "at the first collective",
}
"""Where a node or a job stands, as part of a sentence; the other phases are words of one already."""


class Row(NamedTuple):
    """Nodes that stand at the same place, and since when the first of them does."""

    nodes: list[int]
    phase: str
    since: float
    detail: str


def rows(status: JobStatus) -> list[Row]:
    """The nodes of a job, those furthest behind first, since the others wait for them."""
    grouped: dict[tuple[str, str], Row] = {}
    for node in status.nodes:
        detail = printable(node.detail) if node.exit_code is None else f"exit code {node.exit_code}"
        phase = printable(node.phase)
        row = grouped.setdefault((phase, detail), Row([], phase, node.since, detail))
        row.nodes.append(node.node)
        grouped[phase, detail] = row._replace(since=min(row.since, node.since))
    return sorted(grouped.values(), key=lambda row: (_place(row.phase), row.nodes))


def headline(job: Job, now: float) -> str:
    """The job in one line, without its handle."""
    if job.state.ended:
        took = f" after {duration(job.ended - job.submitted)}" if job.ended else ""
        why = printable(job.detail) or ended_by(job.exit_code, gate_passed=job.gate_passed)
        left = f"; {printable(job.lingers)}" if job.lingers else ""
        return f"{job.state}{took}" + (f": {why}" if why else "") + left
    if job.status is None:
        waits = f": {printable(job.detail)}" if job.detail else ""
        return f"{job.state} for {duration(now - job.submitted)}{waits}"
    foreseen = _foreseen(job.status)
    more = job.detail or (f"{foreseen.sentence}; it may pass" if foreseen else "")
    besides = f"; {printable(more)}" if more else ""
    return f"{_stands(job.status, now)}{_whom(job.status)}{besides}"


def ended_by(code: int | None, *, gate_passed: bool) -> str:
    """Return why it has ended, by the agent's exit code; empty where that says nothing."""
    phase = ("in training, " if gate_passed else "at the gate, ") if code in _IN_PHASE else ""
    return phase + _ENDED_BY.get(code, "")


def hint(job: Job) -> str:
    """Return what to do about that for which it waits."""
    foreseen = _foreseen(job.status) if job.status and not job.state.ended else None
    return printable(job.hint or (foreseen.hint if foreseen else ""))


def _foreseen(status: JobStatus) -> Verdict | None:
    """Return what stands against the job while it waits at the gate, and ends it unless it passes."""
    waits = status.exit_code is None and status.phase in (Phase.STARTING, Phase.GATE)
    return status.verdicts[0] if waits and status.verdicts else None


def _whom(status: JobStatus) -> str:
    """Whom the job waits for. For how long, its phase says: two clocks in one line would not agree."""
    waits = status.waiting_for and status.phase != Phase.ENDED
    return f", waits for {some('node', status.waiting_for)}" if waits else ""


def elsewhere(row: Row, phase: str) -> str:
    """Return what is to be said of these nodes beside a job in that phase: `node 0 ended (exit code 0)`."""
    nodes = some("node", row.nodes)
    if row.phase == phase:
        return f"{nodes}: {row.detail}" if row.detail else ""
    released = (row.phase, phase) == (Phase.GATE, Phase.RENDEZVOUS)  # and nothing has been heard of it since
    where = "through the gate" if released else _AT.get(row.phase, row.phase)
    return f"{nodes} {where}" + (f" ({row.detail})" if row.detail else "")


def _stands(status: JobStatus, now: float) -> str:
    """The job's phase and its age, with the job's size where that is all there is to say."""
    took = duration(now - status.since)
    if status.phase == Phase.ENDED:
        why = ended_by(status.exit_code, gate_passed=status.gate_passed)
        return f"ended {took} ago" + (f": {why}" if why else "")
    if status.phase == Phase.RUNNING:
        left = [node for node in status.nodes if node.phase != Phase.ENDED]
        return f"running on {count(len(left), 'node')} for {took}"
    return f"{_AT.get(status.phase) or printable(status.phase)} for {took}"


def row_text(row: Row, now: float) -> tuple[str, str, str, str]:
    """Nodes, phase, time in it, detail."""
    return some("node", row.nodes), row.phase, duration(now - row.since), row.detail


def place(job: Job) -> Hashable:
    """Equal as long as nothing changed that deserves a line of its own; times and counts do not."""
    if job.status is None or job.state.ended:
        return job.state, hint(job)  # of which there is one for every reason to wait
    if job.status.phase == Phase.ENDED:
        return job.status.attempt, Phase.ENDED
    nodes = tuple((node.node, node.phase) for node in job.status.nodes)
    return job.status.attempt, job.status.phase, tuple(job.status.waiting_for), nodes, hint(job)


def is_waiting(job: Job) -> bool:
    """Whether a person who watches would like to be told again what it waits for."""
    return job.state is State.PENDING or (
        job.status is not None and not job.state.ended and job.status.phase != Phase.RUNNING
    )


def _place(name: str) -> int:
    return Phase.ORDER.index(name) if name in Phase.ORDER else -1
