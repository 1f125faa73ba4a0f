"""The exit code of a job, and the last message to its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.contract.messages import End
from ddplaunch.agent.diagnosis import catalogue

GRACE = 5.0
"""Seconds the ranks have between SIGTERM and SIGKILL when the job is ended."""
CHECKPOINT = 30.0
"""The same when the job is to go on: they may write a checkpoint."""


def farewell(code: int, verdicts: Sequence[Verdict], regroup: bool = False) -> End:
    """Return the last message of the attempt to every node."""
    return End(code, list(verdicts), CHECKPOINT if regroup else GRACE, regroup)


def exit_code(verdicts: Sequence[Verdict], finished: Mapping[int, int]) -> int:
    """Return the job's exit code: the first verdict's, else that of the first node that failed, else 0."""
    if verdicts and verdicts[0].code != "unknown":
        return catalogue.exit_code(verdicts[0])
    return next(filter(None, finished.values()), Exit.WORKER_FAILED)
