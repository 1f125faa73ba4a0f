"""Works out how a job ended: by its hub's exit code, and by Slurm's state. Pure.

The hub's exit code says more than Slurm's state, which is FAILED for a gate that closed and for a program
that raised; Slurm knows of ends of which no hub could speak: time limits, preemption, dead nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, JobStatus, Verdict
from ddplaunch.backends.job import State
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.pending import span

WAITING = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "POWER_UP_NODE",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    }
)
ENDED = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
"""Any other word is of a job that has its nodes."""

_BY_SLURM: Mapping[str, str] = {
    "TIMEOUT": "Slurm ended it at its time limit",
    "PREEMPTED": "Slurm took its nodes for a job that comes first",
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "a node of it did not boot",
    "DEADLINE": "Slurm ended it at its deadline",
    "OUT_OF_MEMORY": "a node ran out of the memory that the job was given",
    "REVOKED": "another cluster of the federation runs it",
}
_STOPS = frozenset(["TIMEOUT", "PREEMPTED", "DEADLINE", "REVOKED"])
"""Ends of a job that was well: whoever needed its nodes, or its time, has stopped it."""


class Outcome(NamedTuple):
    """The end of a job."""

    state: State
    exit_code: int | None
    detail: str = ""


def outcome(seen: SlurmJob, told: JobStatus | None, *, cancelled: bool, me: int) -> Outcome:
    """Return the outcome of a job whose state is one of ENDED, or whose hub has reported its end.

    `told`: by the hub of its last attempt. `me`: our uid.
    """
    code = told.exit_code if told is not None else None
    if seen.state in _BY_SLURM:
        return _ended_by_slurm(seen, code)
    if seen.state == "CANCELLED" or (code == Exit.STOPPED and cancelled):
        return _cancelled(seen, code, cancelled=cancelled, me=me)
    if code is None and seen.signal is None:
        code = seen.exit_code
    if not code and (seen.state == "COMPLETED" or seen.state not in ENDED):
        return Outcome(State.SUCCEEDED, Exit.OK)
    if code == Exit.STOPPED:
        return Outcome(State.LOST, code, "it was told to stop, and not by `ddplaunch cancel`")
    if code is None and seen.signal is not None and seen.reason != "BadConstraints":
        return Outcome(State.LOST, None, f"its batch script was killed by signal {seen.signal}")
    unable = not code and seen.reason not in ("", "NonZeroExitCode")
    return Outcome(State.FAILED, code or None, f"Slurm could not run it: {seen.reason}" if unable else "")


def forgotten(told: JobStatus | None, *, cancelled: bool) -> Outcome:
    """Return the outcome of a job that Slurm no longer knows, by the files it left."""
    code = told.exit_code if told is not None else None
    if code == Exit.OK:
        return Outcome(State.SUCCEEDED, code)
    if cancelled:
        return Outcome(State.CANCELLED, code)
    if code is None:
        return Outcome(State.LOST, None, "Slurm has forgotten it, and it left no exit code")
    if code == Exit.STOPPED:
        return Outcome(State.LOST, code, "it was told to stop, and not by `ddplaunch cancel`")
    return Outcome(State.FAILED, code)


def verdicts(seen: SlurmJob, nodes: Sequence[int] = (), names: str = "") -> list[Verdict]:
    """Return what an end by Slurm's hand means, for when the job's own hub could not speak.

    `nodes`, `names`: those that are known to have failed.
    """
    known = _VERDICTS.get(seen.state)
    if known is None:
        return []
    code, sentence, hint = known
    where = "run" if seen.node_list else "launch"
    limit = "" if math.isinf(seen.time_limit) else f" of {span(seen.time_limit)}"
    facts = [f"Slurm's state of the job is {seen.state}"]
    if seen.reason and seen.reason != seen.state:
        facts.append(f"Slurm's reason is {seen.reason}")
    text = sentence.format(limit=limit, nodes=names or "a node", job=seen.job_id)
    return [Verdict(code, text, where, nodes=list(nodes), facts=facts, hint=hint)]


_VERDICTS: Mapping[str, tuple[str, str, str]] = {
    "TIMEOUT": (
        "node-evicted",
        "Slurm ended the job at its time limit{limit}",
        "raise `slurm.time`, or save checkpoints and submit it again",
    ),
    "DEADLINE": (
        "node-evicted",
        "Slurm ended the job at its deadline",
        "see --deadline in `slurm.extra`",
    ),
    "PREEMPTED": (
        "node-evicted",
        "Slurm took the job's nodes for one that comes first",
        "save checkpoints, and set `retries` so that Slurm starts it again; or take another `slurm.qos`",
    ),
    "NODE_FAIL": (
        "network-lost",
        "{nodes} of the job failed: Slurm lost sight of it",
        "`sinfo --list-reasons` says why; set `retries`, and Slurm starts such a job again on other nodes",
    ),
    "BOOT_FAIL": (
        "node-missing",
        "{nodes} of the job did not boot",
        "`sinfo --list-reasons` says why; leave it out with `slurm.exclude`",
    ),
    "OUT_OF_MEMORY": (
        "rank-killed-memory",
        "the kernel killed a process of the job for memory: it was given less than it used",
        "raise `resources.memory`; `sacct --jobs {job} --format JobID,MaxRSS` shows what it used",
    ),
}


def _ended_by_slurm(seen: SlurmJob, code: int | None) -> Outcome:
    detail = _BY_SLURM[seen.state]
    if seen.state == "TIMEOUT" and not math.isinf(seen.time_limit):
        detail += f" of {span(seen.time_limit)}"
    if code not in (None, Exit.OK, Exit.STOPPED):
        return Outcome(State.FAILED, code, detail)
    if seen.state == "OUT_OF_MEMORY":
        return Outcome(State.FAILED, Exit.OUT_OF_MEMORY, detail)
    stopped = code is None and seen.state in _STOPS
    return Outcome(State.LOST, Exit.STOPPED if stopped else code, detail)


def _cancelled(seen: SlurmJob, code: int | None, *, cancelled: bool, me: int) -> Outcome:
    if cancelled:
        return Outcome(State.CANCELLED, code)
    if seen.ended_by not in (None, me):
        return Outcome(State.LOST, Exit.STOPPED, f"user {seen.ended_by} cancelled it")
    return Outcome(State.CANCELLED, code, "scancel ended it")
