"""Runs rules, and drops a rule that raises: our own mistake must not end a job. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Callable, Optional, TypeVar

Complain = Optional[Callable[[str], None]]
Facts = TypeVar("Facts")
Found = TypeVar("Found")


def run(
    rule: Callable[[Facts], Iterable[Found]], facts: Facts, complain: Complain, where: str
) -> list[Found]:
    """Return all that a rule of the gate, or of the run, finds; nothing where it fails.

    `complain` gets the failure; without it, it is raised.
    """
    try:
        return list(rule(facts))
    except Exception:  # whatever it is, it is ours: the job and the other rules are not to pay for it
        if complain is None:
            raise
        complain(f"a rule of the {where} failed:\n{traceback.format_exc()}")
        return []
