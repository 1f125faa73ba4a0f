"""Works out how a job ended, from its hub's exit code and Slurm's state. Pure.

The hub's exit code says more than Slurm's state, which is FAILED both for a failed gate and for a program
that raised an exception. Slurm knows about ends that leave a hub no time: time limits, preemption, lost
nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from ddplaunch.agent.contract import Exit, Files, JobStatus, Verdict, Where
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log, slurm
from ddplaunch.agent.text.printable import shell_word
from ddplaunch.backends import files, lines
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
"""In any other state, a job still has its nodes."""

_BY_SLURM: Mapping[str, str] = {
    "TIMEOUT": "Slurm ended it at its time limit",
    "PREEMPTED": "Slurm preempted it for a job of higher priority",
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "one of its nodes did not boot",
    "DEADLINE": "Slurm ended it at its deadline",
    "OUT_OF_MEMORY": "it used more memory than it was given",
    "REVOKED": "another cluster of the federation runs it",
}
_STOPS = frozenset(["TIMEOUT", "PREEMPTED", "DEADLINE", "REVOKED"])
"""Ends of a healthy job that Slurm stopped because of its time limit or for another job."""


def outcome(
    job: SlurmJob, hub_status: JobStatus | None, *, cancelled: bool, me: int, by: str = ""
) -> Outcome:
    """Return the outcome of a job whose state is one of ENDED, or whose hub has reported its end.

    `hub_status`: the last attempt's. `me`: this user's uid. `by`: the name of the user who cancelled it.
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
    """Return the outcome of a job that Slurm no longer knows, from the files that it left."""
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
    return [Verdict.of(code, text, where, nodes=list(nodes), facts=facts, hint=hint)]


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
        "save checkpoints, and set `retries` so that Slurm starts it again; or use another `slurm.qos`",
    ),
    "NODE_FAIL": (
        "network-lost",
        "{nodes} of the job failed: Slurm lost contact with it",
        "`sinfo --list-reasons` says why; set `retries`, so that Slurm restarts such jobs on other nodes",
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


_FIRST: Final = 4000
_IO_ERROR: Final = 4021
_SOON: Final = 10.0
"""Seconds within which a script that was not started is over. Later, a real signal with that number may have
ended another script."""


class _Failure(NamedTuple):
    """An error of slurmd. `exit_code` says whether the same job may start on other nodes."""

    name: str  # in Slurm's source
    text: str
    hint: str = ""
    exit_code: int = Exit.NODE_AT_FAULT


_NODES_LOG: Final = (
    "its administrator finds the reason in slurmd's log there; leave it out with `slurm.exclude`"
)
_TEXTS: Mapping[int, _Failure] = {
    4010: _Failure("CREATE_BATCH_DIR_ERROR", "{node} could not make its folder for the batch script"),
    4011: _Failure("MODIFY_BATCH_DIR_ERROR", "{node} could not make its folder for the batch script"),
    4012: _Failure("CREATE_BATCH_SCRIPT_ERROR", "{node} could not write the batch script to its disk"),
    4013: _Failure("MODIFY_BATCH_SCRIPT_ERROR", "{node} could not write the batch script to its disk"),
    4014: _Failure("SETUP_ENVIRONMENT_ERROR", "{node} could not prepare the batch script's environment"),
    4015: _Failure("SHARED_MEMORY_ERROR", "{node} had no shared memory for the batch script"),
    4016: _Failure(
        "SET_UID_OR_GID_ERROR",
        "{node} could not switch to the job's user, whom it may not know",
        "`srun --nodelist={node} id` shows it; its administrator finds the reason in slurmd's log there",
    ),
    4017: _Failure("SET_SID_ERROR", "{node} could not start a session for the batch script"),
    4018: _Failure("CANNOT_SPAWN_IO_THREAD", "{node} could not start another thread"),
    4019: _Failure("FORK_FAILED", "{node} could not start another process"),
    4020: _Failure("EXECVE_FAILED", "{node} could not execute the batch script"),
    _IO_ERROR: _Failure(
        "IO_ERROR",
        "the folder {folder} is not on {node}, or is not writable there: Slurm could not open the job's "
        "output file in it, so it started nothing",
        "submit from a folder that the nodes share; `srun --nodelist={node} --chdir=/ ls -ld {folder}` shows "
        "whether it is there",
        Exit.MISCONFIGURED,
    ),
    4022: _Failure("PROLOG_FAILED", "the prolog of {node} failed"),
    4023: _Failure("EPILOG_FAILED", "the epilog of {node} failed"),
    4024: _Failure("SESSION_KILLED", "the session of the batch script was killed on {node} before it began"),
    4025: _Failure("TOOMANYSTEPS", "{node} has too many steps already"),
    4026: _Failure("STEP_EXISTS", "{node} has the batch script of this job already"),
    4027: _Failure("STEP_NOTRUNNING", "{node} no longer had the job"),
    4028: _Failure("STEP_SUSPENDED", "the job was suspended on {node}"),
    4029: _Failure("STEP_NOTSUSPENDED", "the job was not suspended on {node}"),
    4030: _Failure("INVALID_SOCKET_NAME_LEN", "the path of slurmd's spool folder on {node} is too long"),
    4031: _Failure("CONTAINER_RUNTIME_INVALID", "{node} has no container runtime that Slurm can use"),
    4032: _Failure("CPU_BIND_ERROR", "{node} could not bind the batch script to its CPUs"),
    4033: _Failure("CPU_LAYOUT_ERROR", "{node} could not lay out the job's CPUs"),
    4034: _Failure("TOO_MANY_RPCS", "{node} has too many requests to answer"),
    4035: _Failure("STEPD_PROXY_FAILED", "{node} could not pass on what the batch script's daemon asked"),
}
_BY_SIGNAL: Final = {number & 0x7F: number for number in _TEXTS}
"""The number, by what is left of it in a wait status, from 42 on: no program dies of these by itself."""


class LaunchFailure(NamedTuple):
    """The reason why a batch script never started."""

    outcome: Outcome
    verdict: Verdict


def number(job: SlurmJob) -> int | None:
    """Return the number of the slurmd error that the job's signal means; None: it means none."""
    ran = job.ended - job.started if job.ended and job.started else 0.0
    # The last signal is 64.
    signal = job.signal or 0
    return _BY_SIGNAL.get(signal) if job.state == "FAILED" and (ran <= _SOON or signal > 64) else None


def explained(job: SlurmJob, output: str) -> LaunchFailure | None:
    """Return why the batch script never started; None if the job ended in another way.

    `output`: the path of its output file, or "" if that is not known.
    """
    found = number(job)
    if found is None:
        return None
    failure, node = _TEXTS[found], slurm.first_node(job.node_list)
    words = {"node": node or "a node", "folder": str(PurePath(output).parent) if output else job.workdir}
    quoted = {"node": words["node"], "folder": shell_word(words["folder"])}
    facts = [f"the exit code 0:{job.signal} stands for Slurm's own error {found}, ESLURMD_{failure.name}"]
    if output and found == _IO_ERROR:
        facts.append(f"the output would have been {output}")
    verdict = Verdict.of(
        "launch-failed",
        failure.text.format(**words),
        "launch",
        nodes=[0] if node else [],
        facts=facts,
        hint=(failure.hint or _NODES_LOG).format(**quoted),
    )
    return LaunchFailure(Outcome(State.FAILED, failure.exit_code, verdict.sentence), verdict)


def of_folder(unseen: Path | None, node_list: str) -> str:
    """Return that a job's folder is not on this machine, and maybe why; empty if it is here."""
    if unseen is None:
        return ""
    node = slurm.first_node(node_list) or "its first node"
    return f"its folder {unseen} is not on this machine: {node} may not share {unseen.parent}"


_ERROR = re.compile(r"\[slurm\] \S+ error: (.+)")


def of_script(output: Path | None) -> str:
    """Return why the batch script gave up, or why Slurm did not start it; empty if neither printed it."""
    for line in reversed(lines.last_lines(output, 40) if output else []):
        ours, slurms = _ERROR.fullmatch(line), scheduler_log.daemon_text(line)
        if ours is not None or slurms.startswith("TaskProlog failed "):
            return ours[1] if ours is not None else slurms
    return ""


def of_gates(folder: Path | None) -> list[Verdict]:
    """Return the verdicts of gates that did not reach the hub, each once. `folder`: the job's folder."""
    try:
        text = files.tail(folder / Files.GATES, files.MAX_SMALL) if folder else b""
    except OSError:
        return []
    last = {
        report.node: report.verdict
        for line in text.splitlines()
        if (report := scheduler_log.read_report(line))
    }
    return [verdict for _, verdict in hub_unreached.by_cause(last)]
