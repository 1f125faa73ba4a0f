"""Send a file to Slurm, once.

A controller that is busy may take a job and still be too late for sbatch to hear of it. So sbatch is called
a second time only when the controller was certainly not reached; else the job is looked for, by the path of
its file, which no other job has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.commands import CommandResult, Commands
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.record import Submission
from ddplaunch.backends.slurm.sbatch_errors import refused
from ddplaunch.errors import ClusterError

LIMIT = 60.0
"""Seconds for sbatch: sites let programs of their own look at every job."""
APPEARS = 20.0
"""Seconds in which a job that was taken must have become visible, once the controller answers again."""
_PAUSE = 1.0

TAKE_BACK = 5.0
"""Seconds for which a job is looked for whose submission was interrupted."""

Id = tuple[int, str]
"""Of a job: number, and its cluster's name where sbatch gave one."""


class UncertainError(ClusterError):
    """The error where nobody knows whether Slurm has the job."""


def send(queries: Queries, sent: Submission, words: Sequence[str], env: Mapping[str, str]) -> Id:
    """Submit the file of `sent`, with `words` behind it. Raises ClusterError when Slurm has not taken it."""
    started = time.monotonic()
    while True:
        answer = _sbatch(queries.commands, sent, words, env)
        if answer.code == 0:
            try:
                return parse.job_id(answer.out)
            except parse.NonsenseError:
                return found_or_error(queries, sent, answer)
        if not answer.unanswered:
            raise refused(answer.err)
        if not answer.unreached:
            return found_or_error(queries, sent, answer)
        if time.monotonic() - started > queries.commands.patience:
            raise queries.commands.silent("sbatch", answer, time.monotonic() - started)
        time.sleep(_PAUSE)


def _sbatch(
    commands: Commands, sent: Submission, words: Sequence[str], env: Mapping[str, str]
) -> CommandResult:
    return commands.run(
        "sbatch", "--parsable", sent.script, *words, env={**os.environ, **env}, cwd=sent.workdir, limit=LIMIT
    )


def found_or_error(queries: Queries, sent: Submission, answer: CommandResult) -> Id:
    """The job, when Slurm took it though sbatch does not say so."""
    found = look_for(queries, sent, APPEARS)
    if found is not None:
        return found, queries.commands.cluster
    said = answer.last_line or "nothing"
    raise UncertainError(
        f"it is not known whether Slurm took the job: sbatch said {said!r}, and {APPEARS:.0f} s later no job "
        "of yours had its file",
        hint="`ddplaunch list --to slurm` shows it should it still appear; submit it again if it does not",
    )


def look_for(queries: Queries, sent: Submission, seconds: float) -> int | None:
    """The id of the job that has this file, waiting for it to appear. Raises ClusterError."""
    deadline = time.monotonic() + seconds
    while True:
        for seen in queries.mine().values():
            if is_of(seen, sent):
                return seen.job_id
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def is_of(seen: parse.SlurmJob, sent: Submission) -> bool:
    """Whether the job was made from that file. Its arguments stand behind it."""
    return seen.command == sent.script or seen.command.startswith(f"{sent.script} ")
