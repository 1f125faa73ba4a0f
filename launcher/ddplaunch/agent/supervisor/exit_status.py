"""Describes how this node ended, where no hub answers."""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

from ddplaunch.agent.contract import Exit, JobPlan, Verdict
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.system import proc
from ddplaunch.agent.system.secrets import MissingSecretError

STOP_EVIDENCE = 5.0
STOP_GRACE = 30.0
"""Seconds for torchrun and the ranks to end by themselves after a signal: they may write a checkpoint."""
HURRIED = 2.0
"""Seconds from a second Ctrl-C to SIGKILL."""
LINGER = 1.0
"""Seconds for processes that the launch command leaves behind to end by themselves, as a `tee` does."""
_SHOWN, _LONGEST = 5, 80
LAST_WORDS = 10.0
"""Seconds for the last output, and for the hub to hang up, when the node's work is over."""
VERDICT_WAIT = 45.0
"""Seconds to wait for the hub's verdict after the launch command has failed: the hub waits for all nodes, and
asks again when it knows of victims alone."""
NOTED = 10.0
"""Seconds to wait until the hub, or one in its place, has noted that this node is done."""


def own_code(tracker: RankTracker, oom_kills: int) -> int:
    """Return the Exit code by this node's own facts; the launch command has ended."""
    assert tracker.launch_exit is not None
    if tracker.launch_exit.code == 0:
        return Exit.OK
    killed = any(rank.exit and rank.exit.signal == signal.SIGKILL for rank in tracker.ranks)
    return Exit.OUT_OF_MEMORY if killed and oom_kills else Exit.WORKER_FAILED


def awaited(pids: Sequence[int]) -> str:
    """Return a sentence on processes that are left, and handle SIGTERM."""
    number, shown = _listed(pids)
    return (
        f"the command has ended; waiting up to {STOP_GRACE:.0f} s for {number} with a handler for SIGTERM, "
        f"which may be saving: {shown}"
    )


def _listed(pids: Sequence[int]) -> tuple[str, str]:
    """Return how many processes these are, and their command lines."""
    shown = [f"{pid} {proc.command_line(pid)[:_LONGEST]}".strip() for pid in pids[:_SHOWN]]
    more = f" and {len(pids) - _SHOWN} more" if len(pids) > _SHOWN else ""
    return f"{len(pids)} process{'es' * (len(pids) > 1)}", ", ".join(shown) + more


def left_running(pids: Sequence[int], own_command: bool) -> str:
    """Return a sentence on processes that are ended since their launch command has ended."""
    number, shown = _listed(pids)
    hint = "; `ddplaunch run --keep-background` lets such processes go on" if own_command else ""
    return f"ended {number} that the command left running: {shown}{hint}"


def unlaunched(plan: JobPlan, node: int, error: Exception) -> Verdict:
    """Return why this node's launch command was not started, which only this node knows."""
    from ddplaunch.agent.system import subjects

    code = "secret-missing" if isinstance(error, MissingSecretError) else "image-lacks"
    hint = getattr(error, "hint", "")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        code, hint = "disk-full", "free space there: it holds the job's source, hook and logs"
    return Verdict(code, f"{subjects.node(node, plan.names)}: {error}", "launch", nodes=[node], hint=hint)
