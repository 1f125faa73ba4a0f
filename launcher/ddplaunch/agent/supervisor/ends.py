"""How ranks, the launch command and this node end: waits, exit codes, and what is said about them.

When a rank ends badly, its launcher is held for a moment, so that evidence of the others is collected first.
The rest describes the end of the node's work, for its own log and for the hub.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Sequence

from ddplaunch.agent.contract import Env, Exit, JobPlan, Verdict
from ddplaunch.agent.supervisor import ranks
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes
from ddplaunch.agent.system.secrets import MissingSecretError

HOLD = 1.0
"""Seconds for which a launcher is held at most, once for each start of its ranks: until the evidence is
there, and until ranks have ended whose interpreters were already shutting down, so that their own exit codes
are known."""
_PROGRAMS = ("python", "pypy")
"""torchrun and the parent of mp.spawn end the other ranks when one ends. A shell, or make, does not."""


class Launchers:
    """Holds launchers after a rank's bad end: torchrun by SIGSTOP, MPI's through the rank's keeper."""

    def __init__(self) -> None:
        self.stopping = False  # we end the job ourselves, so no launcher is held
        self._stopped: set[int] = set()
        self._until: dict[int, float] = {}  # by pid: the moment of time.monotonic() until which to hold it

    def hold(self, rank: Rank) -> None:
        """Stop the parent of `rank` before it reaps the rank or ends others because of it."""
        if rank.keeper is not None:
            return  # it waits by itself
        if rank.parent in (0, os.getpid()):  # 0: the rank was reaped before; kill(0) would signal ourselves
            return
        if rank.parent in self._stopped or self.stopping or not _ends_others(rank.parent):
            return
        now = time.monotonic()
        if now < self._until.setdefault(rank.parent, now + HOLD):
            self._stopped.add(rank.parent)
            processes.send(rank.parent, signal.SIGSTOP)

    def let_go(self, node_ranks: Sequence[Rank]) -> None:
        """Once the evidence is collected, let the launchers go on whose ranks are not about to end."""
        for rank in node_ranks:
            if rank.keeper is not None and rank.exit is not None and not rank.released:
                # The launcher will end the ranks of all nodes, so evidence of these comes first.
                waited = time.time() - rank.exit.at
                if not ranks.is_bad_end(rank.exit) or waited > HOLD or self.stopping:
                    rank.released = True
                    rank.keeper.send(b"go")
        now = time.monotonic()
        dying = {rank.parent for rank in node_ranks if is_dying(rank)}
        self._release(
            pid for pid in self._stopped if self.stopping or pid not in dying or now >= self._until[pid]
        )

    def let_go_late(self) -> None:
        """Let launchers go on that have been held for HOLD seconds while evidence is collected."""
        now = time.monotonic()
        self._release(pid for pid in self._stopped if now >= self._until[pid])

    def begin_attempt(self) -> None:
        """Let all of them go on. They have started new ranks, and may be held again for those."""
        self._release(self._stopped)
        self._until.clear()

    def _release(self, pids: Iterable[int]) -> None:
        for pid in list(pids):
            self._stopped.discard(pid)
            processes.send(pid, signal.SIGCONT)


def is_dying(rank: Rank) -> bool:
    """Whether the rank's program is over and its interpreter is shutting down."""
    return rank.alive and rank.line is not None and bool(rank.line.ending)


def _ends_others(pid: int) -> bool:
    """Whether the process may end the other ranks when one ends, and runs: a user may have stopped it."""
    stat = proc.stat(pid)
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    return stat is not None and stat.state != "T" and program.startswith(_PROGRAMS)


# --- the end of this node

STOP_EVIDENCE = 5.0
STOP_GRACE = 30.0
"""Seconds that torchrun and the ranks have to end by themselves after a signal: they may write a
checkpoint."""
HURRIED = 2.0
"""Seconds from a second Ctrl-C to SIGKILL."""
LINGER = 1.0
"""Seconds that processes which the launch command leaves behind have to end by themselves, as `tee` does."""
_COMMANDS_SHOWN, _LONGEST_COMMAND = 5, 80
LAST_WORDS = 10.0
"""Seconds for the last output, and for the hub to hang up, once the node's work is over."""
VERDICT_WAIT = 45.0
"""Seconds to wait for the hub's verdict after the launch command has failed: the hub waits for all nodes, and
asks again if it knows only of victims."""
NOTED = 10.0
"""Seconds to wait until the hub, or one in its place, has noted that this node is done."""


def node_exit_code(tracker: RankTracker, oom_kills: int) -> int:
    """Return the Exit code that this node's own facts give, once the launch command has ended."""
    assert tracker.launch_exit is not None
    if tracker.launch_exit.code == 0:
        return Exit.OK
    killed = any(rank.exit and rank.exit.signal == signal.SIGKILL for rank in tracker.ranks)
    return Exit.OUT_OF_MEMORY if killed and oom_kills else Exit.WORKER_FAILED


def describe_awaited(pids: Sequence[int]) -> str:
    """Return a sentence about processes that are left and handle SIGTERM."""
    number, shown = _listed(pids)
    return (
        f"the command has ended; waiting up to {STOP_GRACE:.0f} s for {number} with a handler for SIGTERM, "
        f"which may be saving: {shown}"
    )


def _listed(pids: Sequence[int]) -> tuple[str, str]:
    """Return how many processes these are, and their command lines."""
    shown = [f"{pid} {proc.command_line(pid)[:_LONGEST_COMMAND]}".strip() for pid in pids[:_COMMANDS_SHOWN]]
    more = f" and {len(pids) - _COMMANDS_SHOWN} more" if len(pids) > _COMMANDS_SHOWN else ""
    return f"{len(pids)} process{'es' * (len(pids) > 1)}", ", ".join(shown) + more


def describe_left_running(pids: Sequence[int], own_command: bool) -> str:
    """Return a sentence about processes that are ended because their launch command has ended."""
    number, shown = _listed(pids)
    hint = "; `ddplaunch run --keep-background` lets such processes go on" if own_command else ""
    return f"ended {number} that the command left running: {shown}{hint}"


def unlaunched_verdict(plan: JobPlan, node: int, error: Exception) -> Verdict:
    """Return the verdict on why this node's launch command was not started; only this node knows."""
    from ddplaunch.agent.system import subjects
    from ddplaunch.agent.text.saying import say

    code = "secret-missing" if isinstance(error, MissingSecretError) else "image-lacks"
    hint = getattr(error, "hint", "")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        code, hint = "disk-full", "free space there: it holds the job's source, hook and logs"
    sentence = say(subjects.node(node, plan.names), f": {error}")
    return Verdict.of(code, sentence, "launch", nodes=[node], hint=hint)


# --- the last checkpoint

_SEARCH_SECONDS = 2.0
"""Seconds to look through the folder. If it has too many files for that, nothing is said."""
_CLOCK_TICK = 0.01
"""Seconds by which a file's time may lag: Linux takes it from the last tick, of at least 100 in a second."""


def describe_checkpoint(plan: JobPlan, signal: float) -> str:
    """Return a sentence about the newest file in the job's folder for checkpoints; empty if nothing is known.

    `signal`: time.time() when the ranks got SIGTERM. Files in a shared folder have the time of its server.
    """
    folder = plan.resume_dir or os.environ.get(Env.RESUME_DIR, "")
    until = time.monotonic() + _SEARCH_SECONDS
    newest, file = 0.0, ""
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with contextlib.suppress(OSError):
                newest, file = max((newest, file), (os.lstat(path).st_mtime, path))
            if time.monotonic() > until:
                return ""
    if newest >= signal - _CLOCK_TICK:
        seconds = max(0.0, newest - signal)
        return f"{os.path.relpath(file, folder)} was written {seconds:.1f} s after the signal"
    writes = file or (os.path.isdir(folder) and (plan.resume_args or plan.resume_dir))
    return f"nothing was written into {folder} after the signal" if writes else ""
