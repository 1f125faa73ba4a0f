"""The first step of several commands: the plans of a job file, with notes on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddplaunch import api

if TYPE_CHECKING:
    from ddplaunch.plan.plan import Plan
    from ddplaunch.spec.models import JobSpec

_NAMED = 5
"""Excluded files that a note names."""


def load(path: str, changes: Sequence[str]) -> list[JobSpec]:
    """Return the jobs in the file at `path`, and print notes once. Raises SpecError, UsageError."""
    from ddplaunch.spec import smells

    found = api.load_all(path, changes)
    for text in smells.notes(*(each.env for each in found)):
        sys.stderr.write(f"note: {text}\n")
    return found


def plan(path: str, target: str, changes: Sequence[str], after: Sequence[str] = ()) -> list[Plan]:
    """Return the plan of each job in the file at `path`, and print notes once. Raises as `api.plan`."""
    plans = api.plan_all(load(path, changes), target, after=after)
    for names in dict.fromkeys(each.left_out for each in plans if each.left_out):
        sys.stderr.write(f"{_note(names)}\n")
    return plans


def only(plans: Sequence[Plan], path: str) -> Plan:
    """Return the plan of a file with one job. Raises UsageError for a sweep, which is not printed."""
    from ddplaunch.errors import UsageError

    if plans[0].sweep:
        raise UsageError(
            f"{path} is a sweep of {len(plans)} jobs, and one job is printed at a time",
            hint=f"`ddplaunch render {path} -o DIR` writes each into a folder of its own; `--set sweep=null` "
            "is the file without its sweep",
        )
    return plans[0]


def _note(left_out: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, left_out[:_NAMED])) + (", …" if len(left_out) > _NAMED else "")
    return (
        f"note: source: {names} looked private and will not travel with the job; "
        "to include it, name it under `source`, or write !NAME in .ddplaunchignore"
    )


def print_json(data: Any) -> None:
    """Print data for scripts."""
    print(json.dumps(data, indent=2), flush=True)
