"""Turns the end of a job into an exit code, by one table for all commands."""

from __future__ import annotations

from typing import Final

from ddplaunch.agent.contract import Exit
from ddplaunch.backends.job import Job, State
from ddplaunch.errors import ExitCode

OF_AGENT: Final = {
    Exit.OK: ExitCode.SUCCEEDED,
    Exit.NODE_AT_FAULT: ExitCode.GATE,
    Exit.MISCONFIGURED: ExitCode.GATE,
    Exit.WORKER_FAILED: ExitCode.FAILED,
    Exit.OUT_OF_MEMORY: ExitCode.FAILED,
    Exit.HANG: ExitCode.HANG,
    Exit.STOPPED: ExitCode.CANCELLED,
    Exit.UNUSABLE: ExitCode.GATE,
}


def of_job(job: Job) -> ExitCode:
    """Return the exit code of `status`, `submit --wait` and `doctor`. A job that is lost has failed."""
    if not job.state.ended:
        return ExitCode.NOT_FINISHED
    if job.state is State.CANCELLED or job.exit_code == Exit.STOPPED:
        return ExitCode.CANCELLED
    if job.state is State.LOST or job.exit_code is None:
        return ExitCode.FAILED
    return of_agent(job.exit_code, gate_passed=job.gate_passed)


def of_wait(job: Job) -> ExitCode:
    """Return the exit code of a job that is no longer waited for: it has ended, or never starts."""
    return ExitCode.GATE if job.never_starts else of_job(job)


def of_agent(code: int, *, gate_passed: bool) -> ExitCode:
    """Return the exit code for one of the agent, which has the same for a lost node at the gate and later."""
    found = OF_AGENT.get(code, ExitCode.FAILED)
    return ExitCode.FAILED if gate_passed and found is ExitCode.GATE else found
