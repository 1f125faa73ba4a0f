"""Makes a job wait for others: `submit --after`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddplaunch.backends.job import Handle, State
from ddplaunch.backends.slurm import limits
from ddplaunch.backends.slurm.backend import connect, parse_handle
from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def jobs(specs: Sequence[JobSpec], handles: Sequence[Handle]) -> list[JobSpec]:
    """Return `specs` as jobs that start when the jobs of `handles` have succeeded.

    Raises UsageError for a job that has failed already: Slurm forgets such a job, and would then start these.
    Raises NotFoundError for an unknown job, ClusterError when Slurm does not answer.
    """
    for spec in specs:
        _check(spec, handles)
    backend = connect()
    ids = []
    for handle in handles:
        before = backend.job(handle)
        if before.state.ended and before.state is not State.SUCCEEDED:
            raise UsageError(
                f"--after: {handle} has ended, and not well ({before.state}): this job would never start",
                hint=f"`ddplaunch diagnose {handle}` says why; submit it again first",
            )
        ids += [] if before.state.ended else [str(parse_handle(handle)[0])]
    return [_with(spec, f"afterok:{':'.join(ids)}") if ids else spec for spec in specs]


def _check(spec: JobSpec, handles: Sequence[Handle]) -> None:
    """Raise UsageError for what Slurm would misunderstand."""
    given = spec.slurm.dependency
    if given and "?" in given:
        raise UsageError(
            f"--after: slurm.dependency is {given}, and Slurm takes no `?` beside another condition",
            hint=f"give all of them there, such as {given}?afterok:ID",
        )
    wanted = limits.requested("\n".join(f"#SBATCH {option}" for option in spec.slurm.extra), os.environ)
    for handle in handles:
        if parse_handle(handle)[1] != wanted.clusters:  # there, that id is another job
            here = f"cluster {wanted.clusters}" if wanted.clusters else "the cluster of this machine"
            raise UsageError(
                f"--after: {handle} is a job of another cluster, and this one goes to {here}",
                hint="a job waits for jobs of its own cluster; `slurm.extra: [--clusters=NAME]` chooses it",
            )


def _with(spec: JobSpec, condition: str) -> JobSpec:
    text = ",".join(filter(None, [spec.slurm.dependency, condition]))
    return spec.model_copy(update={"slurm": spec.slurm.model_copy(update={"dependency": text})})
