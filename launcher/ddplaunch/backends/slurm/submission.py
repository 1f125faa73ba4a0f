"""Submits a file to Slurm exactly once.

A busy controller may accept a job although sbatch gives up waiting for its reply. So sbatch runs a second
time only when it certainly did not reach the controller; otherwise the job is searched for by the path of its
file, which no other job has.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.commands import CommandResult, Commands
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.record import Submission
from ddplaunch.backends.slurm.sbatch_errors import refused
from ddplaunch.errors import ClusterError

LIMIT = 60.0
"""Seconds for sbatch: a site's own submit plugins may be slow."""
APPEARS = 20.0
"""Seconds until a job that Slurm accepted is listed, once the controller answers again."""
_PAUSE = 1.0

CANCEL_WAIT = 5.0
"""Seconds to search for a job whose submission was interrupted."""

Id = tuple[int, str]
"""Job id, and the cluster's name where sbatch prints one."""


class UncertainError(ClusterError):
    """Error for a job of which it is not known whether Slurm has it."""


def send(queries: Queries, record: Submission, words: Sequence[str], env: Mapping[str, str]) -> Id:
    """Submit the file of `record` with the arguments `words`. Raises ClusterError when Slurm refuses it."""
    started = time.monotonic()
    while True:
        answer = _sbatch(queries.commands, record, words, env)
        if answer.code == 0:
            try:
                return parse.job_id(answer.out)
            except parse.NonsenseError:
                return found_or_error(queries, record, answer)
        if not answer.unanswered:
            raise refused(answer.err)
        if not answer.unreached:
            return found_or_error(queries, record, answer)
        if time.monotonic() - started > queries.commands.patience:
            raise queries.commands.silent("sbatch", answer, time.monotonic() - started)
        time.sleep(_PAUSE)


def _sbatch(
    commands: Commands, record: Submission, words: Sequence[str], env: Mapping[str, str]
) -> CommandResult:
    return commands.run(
        "sbatch",
        "--parsable",
        record.script,
        *words,
        env={**os.environ, **env},
        cwd=record.workdir,
        limit=LIMIT,
    )


def try_out(commands: Commands, script: bytes, words: Sequence[str]) -> str:
    """Return when and where Slurm would start this script. Raises ClusterError when it would refuse it."""
    answer = commands.run(
        "sbatch", "--test-only", "/dev/stdin", *words, cwd=str(Path.cwd()), limit=LIMIT, stdin=script
    )
    if answer.code == 0:
        return re.sub(r"^Job \d+ ", "", answer.last_line)
    raise commands.silent("sbatch", answer, 0.0) if answer.unanswered else refused(answer.err)


def found_or_error(queries: Queries, record: Submission, answer: CommandResult) -> Id:
    """Return the job, if Slurm has it although sbatch did not print its id. Raises ClusterError."""
    found = find_submitted(queries, record, APPEARS)
    if found is not None:
        return found, queries.commands.cluster
    reply = answer.last_line or "nothing"
    raise UncertainError(
        f"it is not known whether Slurm has the job: sbatch printed {reply!r}, and {APPEARS:.0f} s later it "
        "is not listed",
        hint="`ddplaunch list --to slurm` shows it if it still appears; submit it again if it does not",
    )


def find_submitted(queries: Queries, record: Submission, seconds: float) -> int | None:
    """Wait until Slurm lists the job of this file, and return its id; None after so many seconds.

    Raises ClusterError.
    """
    deadline = time.monotonic() + seconds
    while True:
        for job in queries.mine().values():
            if is_of(job, record):
                return job.job_id
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def is_of(job: parse.SlurmJob, record: Submission) -> bool:
    """Whether `job` was made from the file of `record`. Slurm lists the file's arguments after its path."""
    return job.command == record.script or job.command.startswith(f"{record.script} ")
