"""Writes a container's termination message: a small JSON file that outlives the container.

{"verdicts": [...], "exit_code": n}, the culprits first. The file is a mount of its own, so it is written in
place. Kubernetes would cut a message longer than LIMIT in the middle, so it is shortened here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import GATE_LEAVES, Env, Exit, Fact, JobPlan, Verdict, codec
from ddplaunch.agent.text import saying

LIMIT = 4096
"""Bytes that the kubelet reads."""
FIRST = 5.0
"""Seconds for node 0's pod to end before the others: as soon as one pod has failed, Kubernetes deletes those
that still run, with their logs, and node 0's log has the bundle."""
_VERDICTS, _FACTS = 20, 16
"""More than ever fit."""
_SENTENCE = 600
"""Characters of a sentence that is cut for want of space."""


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is in a container with a termination message."""
    return bool(environment.get(Env.TERMINATION))


def goes_last(node: int, exit_code: int, elastic: bool = False) -> bool:
    """Whether this node's container has to stay for FIRST seconds after the hub has ended.

    The first pod that fails ends the Job. Of an elastic one, so does node 0's that succeeds.
    """
    last = elastic and node == 0 if exit_code == Exit.OK else node != 0
    return wanted() and last


def of_gate(plan: JobPlan, node: int, exit_code: int) -> int:
    """Return the exit code of the gate's container. Of an elastic job, node 0's pod alone fails the Job.

    A node that is not let pass may be one that the job goes on without.
    """
    if not (plan.min_nodes and node and wanted()):
        return exit_code
    return GATE_LEAVES if exit_code == Exit.STOPPED else Exit.OK


def write(exit_code: int, verdicts: Sequence[Verdict]) -> None:
    """Write the message to the file of Env.TERMINATION, if there is one. Raises nothing."""
    path = os.environ.get(Env.TERMINATION)
    if path:
        with contextlib.suppress(OSError):
            data = text(exit_code, verdicts).encode()
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(file, data, 0)
                os.ftruncate(file, len(data))
            finally:
                os.close(file)


def text(exit_code: int, verdicts: Sequence[Verdict]) -> str:
    """Return a message of at most LIMIT bytes: without facts before hints, last verdicts before first."""
    left = [dataclasses.replace(each, because=_bare(each)[:_FACTS]) for each in verdicts[:_VERDICTS]]
    while True:
        body = {"verdicts": codec.dump(left), "exit_code": exit_code}
        message = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        if len(message.encode()) <= LIMIT or not left:
            return message
        left = _less(left)


def _bare(verdict: Verdict) -> list[Fact]:
    """Return the facts without their sources, which lead into a bundle."""
    return [Fact(text) for text in verdict.facts]


def _less(verdicts: list[Verdict]) -> list[Verdict]:
    *first, last = verdicts
    for index in range(len(verdicts) - 1, -1, -1):
        each = verdicts[index]
        if each.because:
            half = dataclasses.replace(each, because=each.because[: len(each.because) // 2])
            return [*verdicts[:index], half, *verdicts[index + 1 :]]
    if first:
        return first
    if last.victims:
        return [dataclasses.replace(last, victims=[])]
    if len(last.sentence) > _SENTENCE:
        begin = saying.cut(last.text, _SENTENCE - 1, last.machines)
        return [last.saying(begin, "…")]
    if last.hint:
        return [dataclasses.replace(last, hint="")]
    if len(last.nodes) + len(last.ranks) > 2:
        return [dataclasses.replace(last, nodes=last.nodes[:1], ranks=last.ranks[:1])]
    return []
