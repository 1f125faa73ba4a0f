"""Explains a batch script that Slurm never started: its own error number looks like a signal. Pure.

What a node's daemon could not do comes back in place of a wait status: 4021, "could not connect IO", is shown
as the exit code 0:53, a signal that nobody has sent. slurm/slurm_errno.h has the numbers, ESLURMD_…, which
have been the same since Slurm 20.02; some are no longer used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.text import shell
from ddplaunch.backends.job import Outcome, State
from ddplaunch.backends.slurm.parse import SlurmJob

_FIRST: Final = 4000
_IO_ERROR: Final = 4021
_SOON: Final = 10.0
"""Seconds in which a script that was not started is over; a real signal of that number may end another."""


class _Failure(NamedTuple):
    """`exit_code`: whether the same job may start on other nodes."""

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
        "{node} could not become the job's user, whom it may not know",
        "`srun --nodelist={node} id` shows it; its administrator finds the reason in slurmd's log there",
    ),
    4017: _Failure("SET_SID_ERROR", "{node} could not start a session for the batch script"),
    4018: _Failure("CANNOT_SPAWN_IO_THREAD", "{node} could not start another thread"),
    4019: _Failure("FORK_FAILED", "{node} could not start another process"),
    4020: _Failure("EXECVE_FAILED", "{node} could not execute the batch script"),
    _IO_ERROR: _Failure(
        "IO_ERROR",
        "the folder {folder} is not on {node}, or nothing can be written to it there: Slurm could not open "
        "the job's output in it, and started nothing",
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
"""The number by what is left of it in a wait status, from 42 on: no program dies of these by itself."""


class LaunchFailure(NamedTuple):
    """The reason why a batch script never started."""

    outcome: Outcome
    verdict: Verdict


def number(job: SlurmJob) -> int | None:
    """Return the number of slurmd's error for which the job's signal stands; None: it stands for none."""
    ran = job.ended - job.started if job.ended and job.started else 0.0
    # The last signal is 64.
    signal = job.signal or 0
    return _BY_SIGNAL.get(signal) if job.state == "FAILED" and (ran <= _SOON or signal > 64) else None


def explained(job: SlurmJob, output: str) -> LaunchFailure | None:
    """Return why the batch script never started; None for a job that has another end.

    `output`: the path of its output file, "" where it is not known.
    """
    found = number(job)
    if found is None:
        return None
    failure, node = _TEXTS[found], slurm.first_node(job.node_list)
    words = {"node": node or "a node", "folder": str(PurePath(output).parent) if output else job.workdir}
    quoted = {"node": words["node"], "folder": shell.word(words["folder"])}
    facts = [f"the exit code 0:{job.signal} stands for Slurm's own error {found}, ESLURMD_{failure.name}"]
    if output and found == _IO_ERROR:
        facts.append(f"the output would have been {output}")
    verdict = Verdict(
        "launch-failed",
        failure.text.format(**words),
        "launch",
        nodes=[0] if node else [],
        facts=facts,
        hint=(failure.hint or _NODES_LOG).format(**quoted),
    )
    return LaunchFailure(Outcome(State.FAILED, failure.exit_code, verdict.sentence), verdict)
