"""Finds the ranks that torch's mp.spawn has started: their numbers are on their stacks alone."""

from __future__ import annotations

import sys
import time

from ddplaunch.agent.evidence import py_spy
from ddplaunch.agent.outside.find_ranks import SPAWNED, JobRanks, Tree
from ddplaunch.agent.supervisor.rank_roles import SPAWN, Member

_STACKS = 10.0


def of_process(pid: int, tree: Tree) -> JobRanks:
    """Return the ranks below a process, or beside it, numbered from 0 on; none without py-spy."""
    above = tree.table[pid].parent if _may_be_one(pid, tree) else pid
    children = [each for each in tree.below(above)[1:] if _may_be_one(each, tree)]
    program = py_spy.find(sys.executable)
    numbers = py_spy.spawned(program, children, time.monotonic() + _STACKS) if program else {}
    # A data loader's worker is a copy of its rank, stack and all.
    copies = {each for one in numbers for each in tree.below(one)[1:]}
    return JobRanks(
        [
            Member(each, each, number, number, None, SPAWN)
            for each, number in sorted(numbers.items(), key=lambda item: item[1])
            if each not in copies
        ]
    )


def _may_be_one(pid: int, tree: Tree) -> bool:
    """Whether multiprocessing has started it, as a new program or as a copy of its parent."""
    own, parent = tree.table[pid], tree.table.get(tree.table[pid].parent)
    if not own.program.startswith("python"):
        return False
    return own.command.endswith(SPAWNED) or (parent is not None and own.command == parent.command)
