"""Formats the phases of a job and of its nodes, since when, and which nodes the job waits for. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from ddplaunch.agent.contract import (
    OUTPUT_LOST,
    REGROUP,
    Exit,
    JobStatus,
    NodeStatus,
    NodeWait,
    Phase,
    Verdict,
)
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.backends.job import Job, State
from ddplaunch.report.words import count, duration, some

_ENDED_BY: dict[int | None, str] = {
    Exit.NODE_AT_FAULT: "by a fault of a node or the network",
    Exit.MISCONFIGURED: "because the job is misconfigured",
    Exit.WORKER_FAILED: "a worker failed",
    Exit.OUT_OF_MEMORY: "a worker was killed for memory",
    Exit.HANG: "its ranks could not go on",
    Exit.STOPPED: "it was stopped",
    REGROUP: "it made room for newcomers",
    OUTPUT_LOST: "its output could not be written",
    Exit.UNUSABLE: "the agent cannot run here",
}
_HANG_BY = {"deadline": "it hung, and was ended", "death": "a worker failed"}
"""How a job came to Exit.HANG, by the reason for its evidence: ranks whose calls differ may also crash."""
_IN_PHASE = (Exit.NODE_AT_FAULT, Exit.MISCONFIGURED)
"""Exit codes that are used both at the gate and in training."""


_AT = {
    Phase.GATE: "at the gate",
    Phase.RENDEZVOUS: "in rendezvous",
    Phase.INIT: "without a process group",  # ranks import, or need none; few stand in that call
    Phase.FIRST: "at the first collective",
}
"""The phase of a node or a job, as part of a sentence. Other phases read well as they are."""


class Row(NamedTuple):
    """Nodes in the same phase that say the same thing, and since when the first of them has been in it.

    `waits_since`: since when all of them have had ranks that wait; None: none has.
    """

    nodes: list[int]
    phase: str
    since: float
    detail: str
    waits_since: float | None = None


def rows(status: JobStatus) -> list[Row]:
    """Return the nodes of a job in groups, the smallest first: what is odd is done by few.

    Among groups of the same size the earliest phase comes first, because the others wait for it. Nodes that
    wait for the same thing are one group, with the time for which each of them has waited.
    """
    grouped: dict[tuple[str, str], Row] = {}
    for node in status.nodes:
        waits = _waits(node)
        phase, detail, since = printable(node.phase), _detail(node), waits.since if waits else None
        row = grouped.setdefault((phase, detail), Row([], phase, node.since, detail))
        row.nodes.append(node.node)
        latest = max(filter(None, (row.waits_since, since)), default=None)
        grouped[phase, detail] = row._replace(since=min(row.since, node.since), waits_since=latest)
    return sorted(grouped.values(), key=lambda row: (len(row.nodes), _place(row.phase), row.nodes))


def _detail(node: NodeStatus) -> str:
    """Return how a node has ended, or what its hub says about it, or which of its ranks the others wait
    for.
    """
    if node.exit_code is not None:
        return phrases.ended(node.exit_code)
    waits = _waits(node)
    if waits is None:
        return printable(node.detail)
    return f"waits for {some('rank', waits.others)}" if waits.others else "all wait"


def _waits(node: NodeStatus) -> NodeWait | None:
    """Return which ranks of a node wait; None if its hub says something else about it."""
    return node.waits if node.exit_code is None and not node.detail else None


def headline(job: Job, now: float, *, verdicts_below: bool = False) -> str:
    """Return the job in one line, without its handle.

    `verdicts_below`: the verdicts follow, so the line leaves out what they say.
    """
    if verdicts_below and job.state.ended and job.verdicts and not (job.status and job.status.verdicts):
        job = replace(job, detail="")  # its backend has made the verdicts from this
    return numbered(job) + _headline(job, now, preliminary=not verdicts_below)


def is_in_headline(job: Job, verdict: Verdict) -> bool:
    """Whether `headline` has the verdict's sentence, in its detail, even if the verdicts follow."""
    return not job.state.ended and job.detail != "" and verdict in job.verdicts


def numbered(job: Job) -> str:
    """Return "attempt 1: " if it is not the first one, otherwise nothing.

    It is "attempt 1.2: " if the job's launch command has gone on after a failure and has started its ranks
    again.
    """
    status = job.status
    if status is not None and status.failed_attempts and status.launch_attempt and not job.state.ended:
        return f"attempt {job.attempt}.{status.launch_attempt}: "
    return f"attempt {job.attempt}: " if job.attempt else ""


def earlier(job: Job) -> list[str]:
    """Return a line about each earlier attempt: its number, and in one sentence how it ended.

    This includes attempts within a launch command that went on after they failed.
    """
    lines = []
    for each in job.earlier:
        lines += _within(each.number, each.status)
        lines.append(f"attempt {each.number}: {_end(each.status) if each.status else each.why_none}")
    return lines + _within(job.attempt, job.status)


def last_failed(job: Job) -> str:
    """Return the number of the last attempt that `earlier` lists; "" if there is none."""
    within = [each.number for each in (job.status.failed_attempts if job.status else []) if each.verdicts]
    if within:
        return f"{job.attempt}.{within[-1]}"
    return str(job.earlier[-1].number) if job.earlier else ""


def _within(number: int, status: JobStatus | None) -> list[str]:
    return [
        f"attempt {number}.{each.number}: {printable(each.verdicts[0].sentence)}; the launch command went on"
        for each in (status.failed_attempts if status else [])
        if each.verdicts
    ]


def _end(status: JobStatus) -> str:
    if status.verdicts:
        return printable(status.verdicts[0].sentence) + _signal(status) + _checkpoint(status)
    why = ended_by(status.exit_code, status) or "its hub left no result"
    return why + _signal(status) + _checkpoint(status)


def _signal(status: JobStatus | None) -> str:
    """Return, after a semicolon, which ranks got the job file's signal, and why."""
    return f"; {printable(status.signal)}" if status is not None and status.signal else ""


def _checkpoint(status: JobStatus | None) -> str:
    """Return, after a semicolon, what is known about the last checkpoint of a job that was ended from
    outside.
    """
    if status is None or status.exit_code not in (Exit.STOPPED, REGROUP):
        return ""
    ended = [node for node in status.nodes if node.exit_code == status.exit_code and node.detail]
    return "".join(f"; {printable(node.detail)}" for node in ended)


def _headline(job: Job, now: float, *, preliminary: bool) -> str:
    if job.state.ended:
        took = f" after {duration(job.ended - job.submitted)}" if job.ended else ""
        why = printable(job.detail) or ended_by(job.exit_code, job.status, gate_passed=job.gate_passed)
        if not job.detail and job.status is None and job.exit_code in _IN_PHASE and _never_began(job):
            why = "before its gate"
        if job.state is State.CANCELLED and job.exit_code == Exit.STOPPED and not job.detail:
            why = "by `ddplaunch cancel`"  # otherwise its backend says who it was
        left = f"; {printable(job.lingers)}" if job.lingers else ""
        return (
            f"{job.state}{took}"
            + (f": {why}" if why else "")
            + _signal(job.status)
            + _checkpoint(job.status)
            + left
        )
    if job.status is None:
        waits = f": {printable(job.detail)}" if job.detail else ""
        return f"{job.state} for {duration(now - job.submitted)}{waits}"
    verdict = _preliminary(job.status) if preliminary else None
    more = job.detail or (f"{verdict.sentence}; this may be temporary" if verdict else "")
    besides = f"; {printable(more)}" if more else ""
    return f"{_phase_text(job.status, now)}{_waited_for(job.status)}{besides}{_signal(job.status)}"


def _never_began(job: Job) -> bool:
    """Whether its scheduler could not start it."""
    return bool(job.verdicts) and job.verdicts[0].where == "launch"


def ended_by(code: int | None, status: JobStatus | None, *, gate_passed: bool = False) -> str:
    """Return why the job ended, by the agent's exit code; empty if the code has no meaning.

    `gate_passed`: this is known, whatever the hub's status says.
    """
    gate_passed = gate_passed or (status is not None and status.gate_passed)
    phase = ("in training, " if gate_passed else "at the gate, ") if code in _IN_PHASE else ""
    known = _HANG_BY.get(status.why) if status is not None and code == Exit.HANG else None
    return phase + (known or _ENDED_BY.get(code, ""))


def hint(job: Job) -> str:
    """Return what to do about what the job waits for; empty if nothing is known."""
    preliminary = _preliminary(job.status) if job.status and not job.state.ended else None
    return printable(job.hint or (preliminary.hint if preliminary else ""))


def is_preliminary(job: Job, verdict: Verdict) -> bool:
    """Whether the verdict comes from a gate that still waits for the cause to pass."""
    status = job.status if not job.state.ended else None
    return status is not None and _preliminary(status) is not None and verdict in status.verdicts


def _preliminary(status: JobStatus) -> Verdict | None:
    """Return the first preliminary verdict at the gate. It ends the job unless its cause passes."""
    waits = status.exit_code is None and status.phase in (Phase.STARTING, Phase.GATE)
    return status.verdicts[0] if waits and status.verdicts else None


def _waited_for(status: JobStatus) -> str:
    """Return which nodes the job waits for. The age of the phase says for how long."""
    waits = status.waiting_for and status.phase != Phase.ENDED
    return f", waits for {some('node', status.waiting_for)}" if waits else ""


def elsewhere(row: Row, phase: str, now: float) -> str:
    """Return a text about nodes that differ from a job in `phase`: `node 0 has finished`."""
    nodes, detail = some("node", row.nodes), _dated(row, now)
    has = "has" if len(row.nodes) == 1 else "have"
    if row.phase in (phase, Phase.ENDED):
        verb, _, rest = detail.partition(" ")
        return f"{nodes} {has} {rest}" if verb == "has" else f"{nodes}: {detail}" if detail else ""
    released = (row.phase, phase) == (Phase.GATE, Phase.RENDEZVOUS)  # its next heartbeat will show its phase
    where = f"{has} passed the gate" if released else _AT.get(row.phase, row.phase)
    return f"{nodes} {where}" + (f" ({detail})" if detail else "")


def _dated(row: Row, now: float) -> str:
    """Return what the nodes say, and how long their ranks have waited."""
    waited = "" if row.waits_since is None else f", for {duration(now - row.waits_since)}"
    return f"{row.detail}{waited}"


def _phase_text(status: JobStatus, now: float) -> str:
    """Return the job's phase and for how long it has lasted."""
    took = duration(now - status.since)
    if status.phase == Phase.ENDED:
        why = ended_by(status.exit_code, status)
        return f"ended {took} ago" + (f": {why}" if why else "")
    if status.phase == Phase.RUNNING:
        left = [node for node in status.nodes if node.phase != Phase.ENDED]
        return f"running on {count(len(left), 'node')} for {took}"
    return f"{_AT.get(status.phase) or printable(status.phase)} for {took}"


def row_text(row: Row, now: float) -> tuple[str, str, str, str]:
    """Return nodes, phase, time in the phase, and detail as text."""
    return some("node", row.nodes), row.phase, duration(now - row.since), _dated(row, now)


def place(job: Job) -> Hashable:
    """Return a value that changes when the view must print a line. Times and counts do not change it."""
    if job.status is None or job.state.ended:
        return job.state, hint(job)  # each reason to wait has a hint of its own
    if job.status.phase == Phase.ENDED:
        return job.status.attempt, Phase.ENDED
    nodes = tuple((node.node, node.phase) for node in job.status.nodes)
    return job.status.attempt, job.status.phase, tuple(job.status.waiting_for), nodes, hint(job)


def is_waiting(job: Job) -> bool:
    """Whether the view repeats what the job waits for."""
    return job.state is State.PENDING or (
        job.status is not None and not job.state.ended and job.status.phase != Phase.RUNNING
    )


def _place(name: str) -> int:
    return Phase.ORDER.index(name) if name in Phase.ORDER else -1
