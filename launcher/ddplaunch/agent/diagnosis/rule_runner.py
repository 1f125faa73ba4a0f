"""Runs rules, and drops what a rule raises: our own mistake must not end a job. Pure.

At the gate each rule stands for itself, so one that fails costs its own verdict. During the run their order
counts: a later rule might accuse a rank that the failed one would have explained. So there the whole verdict
is dropped.
"""

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
    except Exception:  # whatever it is, it is ours: the job is not to pay for it
        if complain is None:
            raise
        complain(f"a rule of the {where} failed:\n{traceback.format_exc()}")
        return []
