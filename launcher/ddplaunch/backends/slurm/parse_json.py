"""Parses the output of `squeue --json`, Slurm 21.08 and later. Pure.

This is for when the text output cannot be read: the JSON holds every field of every job, up to Slurm 22.05 of
all users, and its form changes from version to version. States are words or lists of words; numbers are bare,
null, or objects of `set`, `infinite` and `number`; exit codes are wait statuses or objects.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ddplaunch.backends.slurm.parse import NonsenseError, SlurmJob, state, wait_status, word

_MOST = 10**15
"""Slurm prints no larger number."""


def squeue(text: str) -> list[SlurmJob]:
    """Return the jobs in `squeue --json`. Raises NonsenseError."""
    return [_json_job(each) for each in _json_jobs(text)]


def _json_jobs(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
        jobs = found["jobs"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NonsenseError(f"no JSON with jobs: {text[:80]!r}") from error
    if not isinstance(jobs, list) or not all(isinstance(each, dict) for each in jobs):
        raise NonsenseError("the JSON's jobs are no list of objects")
    return jobs


def _json_job(job: dict[str, Any]) -> SlurmJob:
    job_id, states = _number(job.get("job_id")), job.get("job_state")
    if job_id is None or not states:
        raise NonsenseError(f"a job without id or state: {str(job)[:80]!r}")
    code, signal = _json_ending(job.get("exit_code"))
    limit = _number(job.get("time_limit"))
    return SlurmJob(
        job_id=int(job_id),
        state=state(*states) if isinstance(states, list) else state(str(states)),
        reason=word(str(job.get("state_description") or job.get("state_reason") or "")),
        name=str(job.get("name") or ""),
        partition=str(job.get("partition") or ""),
        nodes=int(_number(job.get("node_count")) or 0),
        node_list=job["nodes"] if isinstance(job.get("nodes"), str) else "",
        exit_code=code,
        signal=signal,
        restarts=int(_number(job.get("restart_cnt")) or 0),
        submitted=_number(job.get("submit_time")) or None,
        started=_number(job.get("start_time")) or None,
        ended=_number(job.get("end_time")) or None,
        time_limit=math.inf if limit is None else limit * 60,
        workdir=str(job.get("current_working_directory") or ""),
        command=str(job.get("command") or ""),
        dependency=str(job.get("dependency") or ""),
    )


def _number(value: Any) -> float | None:
    """Return a number, bare or in an object with a flag whether it is set; None for one beyond _MOST."""
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) <= _MOST else None


def _json_ending(value: Any) -> tuple[int | None, int | None]:
    """Return exit code and signal of a wait status, or of an object, where the signal has two names."""
    if isinstance(value, dict) and "return_code" in value:
        code, signal = _number(value["return_code"]), value.get("signal") or {}
        number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
        return (None if code is None else int(code)), (int(number) if number else None)
    raw = _number(value)
    return (None, None) if raw is None else wait_status(int(raw))
