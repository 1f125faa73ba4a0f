"""Works out how a job ended, from its hub's exit code and from Slurm's state. Pure.

The hub's exit code tells more than Slurm's state, which is FAILED for a failed gate and for a program that
raised an exception. Slurm knows of ends that leave a hub no time: time limits, preemption, lost nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import Exit, JobStatus, Verdict, Where
from ddplaunch.backends.job import BY_CANCEL, STOPPED_OUTSIDE, Outcome, State
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
"""A job in any other state has its nodes."""

_BY_SLURM: Mapping[str, str] = {
    "TIMEOUT": "Slurm ended it at its time limit",
    "PREEMPTED": "Slurm preempted it for a job of higher priority",
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "a node of it did not boot",
    "DEADLINE": "Slurm ended it at its deadline",
    "OUT_OF_MEMORY": "it used more memory than it was given",
    "REVOKED": "another cluster of the federation runs it",
}
_STOPS = frozenset(["TIMEOUT", "PREEMPTED", "DEADLINE", "REVOKED"])
"""Ends of a healthy job, which Slurm stopped for its time limit or for another job."""


def outcome(
    job: SlurmJob, hub_status: JobStatus | None, *, cancelled: bool, me: int, by: str = ""
) -> Outcome:
    """Return the outcome of a job whose state is one of ENDED, or whose hub has reported its end.

    `hub_status`: of its last attempt. `me`: this user's uid. `by`: the name of the user who cancelled it.
    """
    code = hub_status.exit_code if hub_status is not None else None
    if job.state in _BY_SLURM:
        return _ended_by_slurm(job, code)
    if job.state == "CANCELLED" or (code == Exit.STOPPED and cancelled):
        return _cancelled(job, code, cancelled=cancelled, me=me, by=by)
    if code is None and job.signal is None:
        code = job.exit_code
    if not code and (job.state == "COMPLETED" or job.state not in ENDED):
        return Outcome(State.SUCCEEDED, Exit.OK)
    if code == Exit.STOPPED:
        return Outcome(State.LOST, code, STOPPED_OUTSIDE)
    if code is None and job.signal is not None and job.reason != "BadConstraints":
        return Outcome(State.LOST, None, f"its batch script was killed by signal {job.signal}")
    unable = not code and job.reason not in ("", "NonZeroExitCode")
    return Outcome(State.FAILED, code or None, f"Slurm could not run it: {job.reason}" if unable else "")


def forgotten(hub_status: JobStatus | None, *, cancelled: bool) -> Outcome:
    """Return the outcome of a job that Slurm no longer knows, by the files it left."""
    code = hub_status.exit_code if hub_status is not None else None
    if code == Exit.OK:
        return Outcome(State.SUCCEEDED, code)
    if cancelled:
        return Outcome(State.CANCELLED, code, BY_CANCEL)
    if code is None:
        return Outcome(State.LOST, None, "Slurm has forgotten it, and it left no exit code")
    if code == Exit.STOPPED:
        return Outcome(State.LOST, code, STOPPED_OUTSIDE)
    return Outcome(State.FAILED, code)


def verdicts(job: SlurmJob, nodes: Sequence[int] = (), names: str = "") -> list[Verdict]:
    """Return the verdict on a job that Slurm ended, for when its own hub left none.

    `nodes`, `names`: the nodes that are known to have failed.
    """
    known = _VERDICTS.get(job.state)
    if known is None:
        return []
    code, sentence, hint = known
    where: Where = "run" if job.node_list else "launch"
    limit = "" if math.isinf(job.time_limit) else f" of {span(job.time_limit)}"
    facts = [f"Slurm's state of the job is {job.state}"]
    if job.reason and job.reason != job.state:
        facts.append(f"Slurm's reason is {job.reason}")
    text = sentence.format(limit=limit, nodes=names or "a node", job=job.job_id)
    return [Verdict(code, text, where, nodes=list(nodes), facts=facts, hint=hint)]


_VERDICTS: Mapping[str, tuple[str, str, str]] = {
    "TIMEOUT": (
        "node-evicted",
        "Slurm ended the job at its time limit{limit}",
        "raise `slurm.time`, or save checkpoints and submit it again",
    ),
    "DEADLINE": ("node-evicted", "Slurm ended the job at its deadline", "see --deadline in `slurm.extra`"),
    "PREEMPTED": (
        "node-evicted",
        "Slurm preempted the job for one of higher priority",
        "save checkpoints, and set `retries` so that Slurm starts it again; or take another `slurm.qos`",
    ),
    "NODE_FAIL": (
        "network-lost",
        "{nodes} of the job failed: Slurm lost contact with it",
        "`sinfo --list-reasons` says why; set `retries`, and Slurm starts such a job again on other nodes",
    ),
    "BOOT_FAIL": (
        "node-missing",
        "{nodes} of the job did not boot",
        "`sinfo --list-reasons` says why; leave it out with `slurm.exclude`",
    ),
    "OUT_OF_MEMORY": (
        "rank-killed-memory",
        "the kernel killed a process of the job, which used more memory than it was given",
        "raise `resources.memory`; `sacct --jobs {job} --format JobID,MaxRSS` shows what it used",
    ),
}


def _ended_by_slurm(job: SlurmJob, code: int | None) -> Outcome:
    detail = _BY_SLURM[job.state]
    if job.state == "TIMEOUT" and not math.isinf(job.time_limit):
        detail += f" of {span(job.time_limit)}"
    if code not in (None, Exit.OK, Exit.STOPPED):
        return Outcome(State.FAILED, code, detail)
    if job.state == "OUT_OF_MEMORY":
        return Outcome(State.FAILED, Exit.OUT_OF_MEMORY, detail)
    stopped = code is None and job.state in _STOPS
    return Outcome(State.LOST, Exit.STOPPED if stopped else code, detail)


def _cancelled(job: SlurmJob, code: int | None, *, cancelled: bool, me: int, by: str) -> Outcome:
    if cancelled:
        return Outcome(State.CANCELLED, code, BY_CANCEL)
    if job.ended_by is None:
        return Outcome(State.CANCELLED, code, "by scancel")
    who = f"by scancel (user {by or job.ended_by})"
    if job.ended_by != me:
        return Outcome(State.LOST, Exit.STOPPED, f"cancelled {who}")
    return Outcome(State.CANCELLED, code, who)
