"""The exit code of a job, and the last message to its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import REGROUP, Exit, Verdict
from ddplaunch.agent.contract.messages import End
from ddplaunch.agent.diagnosis import catalogue

GRACE = 5.0
"""Seconds the ranks have between SIGTERM and SIGKILL when the job is ended."""
CHECKPOINT = 30.0
"""The same at REGROUP: they may write a checkpoint."""


def farewell(code: int, verdicts: Sequence[Verdict]) -> End:
    """Return the last message to every node."""
    return End(code, list(verdicts), CHECKPOINT if code == REGROUP else GRACE)


BACK_TO_GATE = farewell(REGROUP, [])
"""Answer to a supervisor of an earlier attempt: it lost its connection, and did not get the end."""


def exit_code(verdicts: Sequence[Verdict], finished: Mapping[int, int]) -> int:
    """Return the job's exit code: the first verdict's, else that of the first node that failed, else 0."""
    if verdicts and verdicts[0].code != "unknown":
        return catalogue.exit_code(verdicts[0])
    return next(filter(None, finished.values()), Exit.WORKER_FAILED)
