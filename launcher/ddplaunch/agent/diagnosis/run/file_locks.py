"""Rules on ranks that wait for the lock on a file: the one who holds it is the first cause.

The codes are those of a rank in its own code, or late to init_process_group: only the cause is exact. Of who
waits while another works, and may hold the lock, see `JobView.queued`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Wait
from ddplaunch.agent.diagnosis.run import lock_waits, stacks
from ddplaunch.agent.diagnosis.run.job_view import Found, JobView
from ddplaunch.agent.diagnosis.run.waiting import confidence_in, holder_facts, others, verdict_on
from ddplaunch.agent.system import phrases, subjects

_DEADLOCK = (
    "Let rank {holder} release the lock before {place}: a rank that waits for all others must hold nothing "
    "that one of them needs to get there."
)
_WORKS = (
    "The others need what rank {holder} does under the lock: do it before the job, keep it short, or let "
    "them wait in a barrier after it, with a timeout of the process group that is long enough."
)
_FOREIGN = "See what {whom} does on {node} (`lslocks -p {pid}`); it may be left over from an earlier job."
_LEFT = "A build that was killed leaves its lock behind. If no build runs on any node, {do}."
_SOMEBODY = "`lslocks` on {node} shows who holds the lock; it may be a process of another node or container."


@dataclass(frozen=True)
class _Lock:
    """A lock on a file, the ranks that wait for it, and the rank that holds it, where one does."""

    wait: Wait
    ranks: list[int]
    place: str  # where they wait
    holder: Optional[int]
    others: list[int]  # all that wait for a lock of a rank at work: this one, or another

    @property
    def queue(self) -> str:
        """'ranks 1 and 2 wait for the lock on /data/cache.lock in load (data.py:20)'."""
        verb = phrases.one_or(self.ranks, "waits", "wait")
        file = self.wait.file or "a file"
        return f"{subjects.ranks(self.ranks)} {verb} for the lock on {file} in {self.place}"


class _Cause(NamedTuple):
    ranks: list[int]
    sentence: str
    hint: str


def queued(view: JobView) -> Optional[Found]:
    """Ranks that wait for what another, which works, may give. Nobody was seen to hold it: none is blamed."""
    return Found(None, view.queued)


def late_for_a_lock(view: JobView) -> Optional[Found]:
    """Ranks that have not called init_process_group, because of a lock."""
    return _found(view, view.late, "rank-late-to-init")


def waits_for_a_lock(view: JobView) -> Optional[Found]:
    """Ranks for which the others wait in a collective, and which wait for a lock."""
    return _found(view, [rank for rank in view.stragglers if rank not in view.late], "rank-in-user-code")


def _found(view: JobView, ranks: list[int], code: str) -> Optional[Found]:
    lock = _wanted_lock(view, [rank for rank in ranks if rank not in view.explained])
    if lock is None:
        return None
    if lock.holder is None:
        cause = _held_by_no_rank(view, lock)
    elif lock.holder in view.waiting:
        cause = _held_in_a_collective(view, lock, lock.holder)
    elif lock.others:
        cause = _held_at_work(view, lock, lock.holder)
    else:
        return None  # it waits for a lock, too: perhaps for one that it holds itself
    late = cause.ranks if lock.others else lock.ranks
    missed = [rank for rank in late if rank in view.late]
    never = f"{subjects.ranks(missed)} never reached init_process_group; " if missed else ""
    found = verdict_on(
        view,
        code,
        cause.ranks,
        f"{never}{cause.sentence}{others(view, cause.ranks)}",
        [
            f"rank {rank}: process {view.ranks[rank].pid} waits for the lock of pid {lock.wait.holder}"
            for rank in lock.ranks[:4]
            if lock.wait.holder
        ]
        + holder_facts(view, [rank for rank in cause.ranks if rank not in view.waiting]),
        cause.hint,
        confidence_in(view, lock.ranks),
    )
    victims = {*found.victims, *lock.ranks, *lock.others} - {*cause.ranks}
    queue = [*lock.ranks, *lock.others] if lock.others else []  # of whom the holder alone is to blame
    return Found(replace(found, victims=sorted(victims)), [*cause.ranks, *queue])


def _wanted_lock(view: JobView, ranks: list[int]) -> Optional[_Lock]:
    """Return the lock for which the first of these ranks waits; one that a rank at work holds comes first."""
    waits = {rank: wait for rank in ranks if (wait := lock_waits.of(view.ranks[rank])) is not None}
    if not waits:
        return None
    holders = {rank: _rank_of(view, rank, wait.holder) for rank, wait in waits.items()}
    of_worker = [rank for rank, its in holders.items() if its in view.stragglers and its not in waits]
    first = (of_worker or [*waits])[0]
    wait, place = waits[first], view.locations[first]
    same = [
        rank
        for rank, its in waits.items()
        if (its.file, its.holder) == (wait.file, wait.holder)
        and (its.file or str(view.locations[rank]) == str(place))
    ]
    return _Lock(wait, same, str(replace(place, awaits="")), holders[first], of_worker)


def _held_by_no_rank(view: JobView, lock: _Lock) -> _Cause:
    """Another process holds the lock, or no holder was seen: who waits for it is named."""
    first, holder = lock.ranks[0], lock.wait.holder
    node = view.node(view.node_of[first])
    if holder > 0:
        command = f" ({phrases.clipped(lock.wait.command, 80)})" if lock.wait.command else ""
        whom = f"pid {holder}{command}"
        hint = _FOREIGN.format(whom=whom, node=node, pid=holder)
        return _Cause(lock.ranks, f"{lock.queue}, which {whom} holds", hint)
    frame = stacks.polls(stacks.main(view.ranks[first].stacks))
    hint = _SOMEBODY.format(node=node)
    if frame is not None and "baton" in frame.file:
        file = lock.wait.file
        do = f"`rm {file}`" if file else "remove the file `lock` in the folder of the build"
        hint = _LEFT.format(do=do)
    seen = ", which another process holds" if holder else "; no holder was seen"
    return _Cause(lock.ranks, f"{lock.queue}{seen}", hint)


def _held_in_a_collective(view: JobView, lock: _Lock, holder: int) -> _Cause:
    """The holder waits for those who wait for its lock: neither can go on."""
    place = view.locations[holder]
    waits = f"rank {holder} holds it and waits for {subjects.ranks(lock.ranks)} in {place}"
    hint = _DEADLOCK.format(holder=holder, place=place)
    return _Cause(sorted([holder, *lock.ranks]), f"{lock.queue}; {waits}", hint)


def _held_at_work(view: JobView, lock: _Lock, holder: int) -> _Cause:
    """The holder works under the lock: the others come after it."""
    verb = phrases.one_or(lock.ranks, "waits", "wait")
    holds = f"rank {holder} is in {view.locations[holder]} and holds the lock on {lock.wait.file}"
    queue = f"for which {subjects.ranks(lock.ranks)} {verb} in {lock.place}"
    elsewhere = view.whereabouts([rank for rank in lock.others if rank not in lock.ranks])
    return _Cause([holder], "; ".join([f"{holds}, {queue}", *elsewhere]), _WORKS.format(holder=holder))


def _rank_of(view: JobView, number: int, pid: int) -> Optional[int]:
    """Return the rank that is this process, or whose loader's worker is, on the machine of rank `number`."""
    machine = view.nodes[view.node_of[number]].machine
    for other, rank in view.ranks.items():
        here = view.node_of[other] == view.node_of[number] or (
            machine and view.nodes[view.node_of[other]].machine == machine
        )
        workers = [child.pid for child in rank.children if child.role == "loader"]
        own = [rank.pid, *([rank.process.pid] if rank.process is not None else []), *workers]
        if here and rank.alive and pid in own:
            return other
    return None
