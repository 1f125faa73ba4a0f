"""Ranks in the same stack are shown once."""

from __future__ import annotations

import dataclasses

from tests.unit.report.pictures import stuck

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.report import rank_table


def test_another_thread_is_shown_once_with_the_ranks_that_have_it() -> None:
    """Below the main thread, which they share."""
    ranks = stuck.mismatch()
    helper = Stack("pin_memory", False, [Frame("run", "/lib/python3.11/threading.py", 10)])
    ranks[:2] = [dataclasses.replace(each, stacks=[helper, *each.stacks]) for each in ranks[:2]]
    groups = rank_table.groups(stuck.view(stuck.bundle(ranks)), [3])

    traces = [(trace.name, trace.ranks) for trace in groups[1].traces]
    assert [("thread MainThread (main)", [0, 1, 2]), ("thread pin_memory", [0, 1])] == traces
