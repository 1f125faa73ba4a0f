"""Writes a container's termination message: a small JSON file that outlives the container.

{"verdicts": [...], "exit_code": n}, the culprits first. The file is mounted by itself, so it is written in
place; and what is longer than LIMIT would be cut in the middle, so it is cut here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

from ddplaunch.agent.contract import Env, Exit, Verdict, codec

LIMIT = 4096
"""Bytes that the kubelet reads."""
FIRST = 5.0
"""Seconds for node 0's pod to end before the others do: as soon as one pod has failed, Kubernetes deletes
those that still run, with their logs, and node 0's has the bundle in it."""
_VERDICTS, _FACTS = 20, 16
"""More than there is ever room for."""
_SENTENCE = 600
"""Characters of a sentence that tell enough, where there is no room for all of it."""


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a container's, whose last words somebody will read."""
    return bool(environment.get(Env.TERMINATION))


def goes_last(node: int, exit_code: int) -> bool:
    """Whether this node's container has to stay for FIRST seconds after the hub has ended."""
    return wanted() and node != 0 and exit_code != Exit.OK


def write(exit_code: int, verdicts: Sequence[Verdict]) -> None:
    """Write the message where Env.TERMINATION says, if it does. A file that refuses it changes nothing."""
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
    """Return at most LIMIT bytes: facts are left out before hints, and the last verdicts before the first."""
    left = [dataclasses.replace(each, facts=each.facts[:_FACTS]) for each in verdicts[:_VERDICTS]]
    while True:
        body = {"verdicts": codec.dump(left), "exit_code": exit_code}
        found = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        if len(found.encode()) <= LIMIT or not left:
            return found
        left = _less(left)


def _less(verdicts: list[Verdict]) -> list[Verdict]:
    *first, last = verdicts
    for index in range(len(verdicts) - 1, -1, -1):
        each = verdicts[index]
        if each.facts:
            half = len(each.facts) // 2
            return [
                *verdicts[:index],
                dataclasses.replace(each, facts=each.facts[:half]),
                *verdicts[index + 1 :],
            ]
    if first:
        return first
    if last.victims:
        return [dataclasses.replace(last, victims=[])]
    if len(last.sentence) > _SENTENCE:
        return [dataclasses.replace(last, sentence=last.sentence[: _SENTENCE - 1] + "…")]
    if last.hint:
        return [dataclasses.replace(last, hint="")]
    if len(last.nodes) + len(last.ranks) > 2:
        return [dataclasses.replace(last, nodes=last.nodes[:1], ranks=last.ranks[:1])]
    return []
