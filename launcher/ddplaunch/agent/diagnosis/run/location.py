"""Finds where a rank stands: in a collective, in its loader, at its exit, or in its own code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Frame, Phase, RankEvidence
from ddplaunch.agent.diagnosis.run import call_records, lock_waits, stacks
from ddplaunch.agent.system import phrases

IN_COLLECTIVE = "collective"
IN_INIT = "init_process_group"
IN_LOADER = "loader"
IN_MPI = "mpi"
IN_FINALIZE = "MPI_Finalize"
IN_EXIT = "exit"
_INITS = dict.fromkeys(["Init", "Init_thread"], "MPI_Init")
"""Mostly called by the import of mpi4py, where no user reads its name."""
BACKWARD = "backward"
"""Stands for DDP's collective of gradients, which has no frame of its own."""
SLEEP = re.compile(
    r"hrtimer_nanosleep|(anon_)?pipe_read|wait_for_partner|do_wait|\w*sys_pause|do_sigtimedwait"
)
"""Where the kernel lets a process sleep that wants to, reads a pipe, or waits for a child or a signal."""
_LOCKS = re.compile(r"^\s*with\b|\.acquire\(")
_AWAITED = {
    "a key in the store": re.compile(r"(?i)store\.(wait|(multi_)?get)\("),
    "a file": re.compile(r"^(while|for)\b.*(exists|is_?file)\(.*sleep\("),
}
"""What a rank may wait for until another rank provides it, and the source lines at which it does so."""
_LOOKS = 20.0
"""Wake-ups a second: TORCH_NCCL_BLOCKING_WAIT sleeps a millisecond between two looks at its collective."""
_ASLEEP = 5.0
"""Seconds without a movement after which backward waits for other ranks, where no call is counted."""
ELSEWHERE = "elsewhere"
ENDED = "ended"


@dataclass(frozen=True)
class Location:
    """Position of a rank. `site` is the user's line, `number` the collective's, where they are known."""

    kind: str
    what: str = ""  # the collective's name as the user called it, or MPI's function
    group: str = ""
    number: Optional[int] = None
    site: Optional[Frame] = None
    awaits: str = ""  # 'a file', which another may provide

    def __str__(self) -> str:
        if self.kind == IN_COLLECTIVE:
            number = "" if self.number is None else f" {self.number}"
            return f"{self.what or 'a collective'}{number}{phrases.at(self.site)}"
        if self.kind == IN_INIT:
            return f"init_process_group{phrases.at(self.site)}"
        if self.kind == IN_MPI:
            return f"{self.what}{phrases.at(self.site)}"
        if self.kind == IN_LOADER:
            return f"DataLoader.__next__{phrases.at(self.site)}"
        if self.kind == IN_EXIT:
            return "the exit of Python"
        if self.site is None:
            return "a place that no stack shows"
        return phrases.place(self.site) + (f", waiting for {self.awaits}" if self.awaits else "")


def stand(rank: RankEvidence, line: str = "") -> Location:
    """Return where the rank stands, by its stack and by what it has called and not finished.

    `line`: the text of its main thread's innermost line, where it is known.
    """
    if not rank.alive:
        return Location(ENDED, site=stacks.user_frame(rank.raised[-1].frames) if rank.raised else None)
    frames = stacks.main(rank.stacks)
    site = stacks.user_frame(frames)
    if stacks.in_init(frames):
        return Location(IN_INIT, site=site)
    if rank.phase == Phase.FINALIZING and not frames:
        return Location(IN_MPI, IN_FINALIZE) if rank.mpi == "ending" else Location(IN_EXIT)
    function = stacks.mpi_function(frames)
    if function:
        return Location(IN_MPI, _INITS.get(function, function), site=site)
    named = stacks.collective(frames) or call_records.entered(rank, site)
    waited = None if named else call_records.waited_for(rank)
    pending = None if rank.backend == "nccl" and _waits_by_itself(rank, frames, line) else _pending(rank)
    if waited is not None and (waited.p2p or pending is None):
        what = call_records.named(waited) if waited.p2p else waited.op
        return Location(IN_COLLECTIVE, what, waited.group, site=site)
    if named or (pending and not stacks.in_loader(frames)):
        group, number, op = pending or ("", None, "")
        return Location(IN_COLLECTIVE, named or op, group, number, site)
    if has_no_hook(rank) and not rank.groups and rank.still_for >= _ASLEEP and stacks.in_backward(frames):
        return Location(IN_COLLECTIVE, BACKWARD, site=site)
    if stacks.in_loader(frames):
        return Location(IN_LOADER, site=stacks.loader_caller(frames))
    return Location(ELSEWHERE, site=site, awaits=lock_waits.lock(rank) or _awaited(line))


def has_no_hook(rank: RankEvidence) -> bool:
    """Whether no hook has given its calls. A debug server gives collectives, but no messages of Gloo."""
    return rank.stack_source in ("", "py-spy", "debug server") and not rank.calls


def _awaited(line: str) -> str:
    """'a file', where the line waits for one that another rank provides; "" where it waits for nothing."""
    return next((what for what, calls in _AWAITED.items() if calls.search(line)), "")


def _waits_by_itself(rank: RankEvidence, frames: Sequence[Frame], line: str) -> bool:
    """Whether the main thread waits for no GPU, whatever the rank has begun there.

    It sleeps, reads, or waits for a lock, a file or a key.
    """
    own = frames[:1] != [] and not stacks.in_torch(frames[:1])
    process = rank.process
    sleeps = process is not None and SLEEP.fullmatch(process.wchan.partition(".")[0]) is not None
    seldom = process is not None and process.wakeups < _LOOKS
    locked = any(stack.main and stack.on_lock for stack in rank.stacks) and _LOCKS.search(line) is not None
    polls = stacks.polls(frames) is not None or bool(_awaited(line))
    return polls or stacks.sleeps_in_python(frames) or (own and (locked or (sleeps and seldom)))


def _pending(rank: RankEvidence) -> Optional[tuple[str, Optional[int], str]]:
    """Group, number and name of the first collective this rank called that is not done."""
    for group in sorted(rank.groups, key=lambda group: group.name):
        if group.enqueued > group.completed:
            first = group.completed + 1
            for entry in rank.collectives:
                if entry.group == group.name and entry.seq == first and not entry.p2p:
                    return group.name, first, plain(entry.op)
            return group.name, first, ""
    return None


def plain(op: str) -> str:
    """'all_reduce' of 'gloo:all_reduce'."""
    return op.rpartition(":")[2]
