"""Puts Slurm's words for a dependency into a sentence. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_EVENTS: Final = {
    "after": ("has started", "has not started"),
    "afterany": ("has ended", "has not ended"),
    "afterok": ("has succeeded", "has not succeeded"),
    "afternotok": ("has failed", "has not failed"),
    "aftercorr": ("has succeeded, task by task", "has not succeeded"),
    "afterburstbuffer": ("has freed its burst buffer", "has not freed its burst buffer"),
}
"""Two texts on a job: the end that a dependency waits for, and what happened instead."""


class _Part(NamedTuple):
    kind: str
    job: str
    failed: bool


def waits_for(text: str) -> str:
    """Return `until job 7 has succeeded` for `afterok:7(unfulfilled)`; empty where that is not understood."""
    if text.partition("(")[0] == "singleton":
        return "until no other job of its name and its user runs or waits"
    events = [f"job {each.job} {_EVENTS[each.kind][0]}" for each in _parts(text) if not each.failed]
    return "until " + (" or " if "?" in text else " and ").join(events) if events else ""


def missed(text: str) -> str:
    """Return `job 7 has not succeeded` for `afterok:7(failed)`; empty where no part has failed."""
    return " and ".join(f"job {each.job} {_EVENTS[each.kind][1]}" for each in _parts(text) if each.failed)


def _parts(text: str) -> list[_Part]:
    """Return the parts of `afterok:7(unfulfilled),afterany:8_*(failed)` that are understood."""
    found = re.findall(r"(\w+):(\d+)(?:_\*|_\d+)?(?:\+\d+)?(?:\((\w+)\))?", text)
    return [_Part(kind, job, state == "failed") for kind, job, state in found if kind in _EVENTS]
