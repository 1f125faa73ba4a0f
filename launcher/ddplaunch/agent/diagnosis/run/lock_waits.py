"""Reads for which lock on a file a rank waits: in the kernel, or in a function that tries again and again."""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import RankEvidence, Wait
from ddplaunch.agent.diagnosis.run import stacks


def of(rank: RankEvidence) -> Optional[Wait]:
    """Return its wait, without a file or a holder where none was seen; None: it waits for no such lock."""
    wait = rank.process.waits_for if rank.process is not None else None
    if wait is not None and wait.holder and wait.file:
        return wait
    if stacks.polls(stacks.main(rank.stacks)) is None or (wait is not None and wait.functions):
        return None  # or for storage, when it looks at the file
    return wait or Wait()


def lock(rank: RankEvidence) -> str:
    """'the lock on /data/cache.lock'; "" where it waits for none."""
    wait = of(rank)
    return "" if wait is None else f"the lock on {wait.file or 'a file'}"
