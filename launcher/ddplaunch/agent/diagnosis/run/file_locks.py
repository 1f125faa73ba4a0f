"""Rules on ranks that wait for the lock on a file: the one who holds it is the first cause.

The codes are those of a rank in its own code, or late to init_process_group: only the cause is exact. Of who
waits while another works, and may hold the lock, see `JobView.queued`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import lock_waits, stacks
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.stages import Stage
from ddplaunch.agent.diagnosis.run.waiting import confidence_in, holder_facts, others, verdict_on
from ddplaunch.agent.system import phrases, subjects

ENTRIES = ()

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


def late_for_a_lock(view: JobView) -> Optional[Verdict]:
    """Ranks that have not called init_process_group, because of a lock."""
    return _verdict(view, view.late, "rank-late-to-init")


def waits_for_a_lock(view: JobView) -> Optional[Verdict]:
    """Ranks for which the others wait in a collective, and which wait for a lock."""
    return _verdict(view, [rank for rank in view.stragglers if rank not in view.late], "rank-in-user-code")


def _verdict(view: JobView, ranks: list[int], code: str) -> Optional[Verdict]:
    view.explained.update(view.queued)
    open_ones = [rank for rank in ranks if rank not in view.explained]
    waits = {rank: wait for rank in open_ones if (wait := lock_waits.of(view.ranks[rank])) is not None}
    if not waits:
        return None
    holders = {rank: _rank_of(view, rank, wait.holder) for rank, wait in waits.items()}
    served = [rank for rank, its in holders.items() if its in view.stragglers and its not in waits]
    first = (served or [*waits])[0]
    wait = waits[first]
    same = [
        rank
        for rank, its in waits.items()
        if (its.file, its.holder) == (wait.file, wait.holder)
        and (its.file or str(view.locations[rank]) == str(view.locations[first]))
    ]
    holder = holders[first]
    verb = phrases.one_or(same, "waits", "wait")
    where = replace(view.locations[first], what="")
    what = f"{subjects.ranks(same)} {verb} for the lock on {wait.file or 'a file'} in {where}"
    node = view.node(view.node_of[first])
    missed = (
        f"{subjects.ranks(same)} never reached init_process_group; " if code != "rank-in-user-code" else ""
    )
    if holder is None:
        whom = f"pid {wait.holder}" + (f" ({phrases.clipped(wait.command, 80)})" if wait.command else "")
        if wait.holder <= 0:
            sentence = (
                f"{what}, which {'another process holds' if wait.holder else 'nobody was seen to hold'}"
            )
            hint = _SOMEBODY.format(node=node)
            frame = stacks.polls(stacks.main(view.ranks[first].stacks))
            if frame is not None and "baton" in frame.file:
                do = f"`rm {wait.file}`" if wait.file else "remove the file `lock` in the folder of the build"
                hint = _LEFT.format(do=do)
        else:
            sentence = f"{what}, which {whom} holds"
            hint = _FOREIGN.format(whom=whom, node=node, pid=wait.holder)
        culprits = same
    elif holder in view.waiting:
        place = view.locations[holder]
        sentence = f"{what}; rank {holder} holds it and waits for {subjects.ranks(same)} in {place}"
        hint = _DEADLOCK.format(holder=holder, place=place)
        culprits = sorted([holder, *same])
    elif served:
        view.explained.update([*same, *served])  # the holder is the cause; it alone is blamed
        sentence = (
            f"rank {holder} is in {view.locations[holder]} and holds the lock on {wait.file}, for which "
        )
        sentence += f"{subjects.ranks(same)} {verb} in {where}"
        sentence = "; ".join([sentence, *view.whereabouts([rank for rank in served if rank not in same])])
        missed = f"rank {holder} never reached init_process_group; " if missed and holder in view.late else ""
        hint = _WORKS.format(holder=holder)
        culprits = [holder]
    else:
        return None  # it waits for a lock, too: perhaps for one that it holds itself
    found = verdict_on(
        view,
        code,
        culprits,
        f"{missed}{sentence}{others(view, culprits)}",
        [
            f"rank {rank}: process {view.ranks[rank].pid} waits for the lock of pid {wait.holder}"
            for rank in same[:4]
            if wait.holder
        ]
        + holder_facts(view, [rank for rank in culprits if rank not in view.waiting]),
        hint,
        confidence_in(view, same),
    )
    return replace(found, victims=sorted({*found.victims, *same, *served} - {*culprits}))


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


RULES = ((Stage.STRAGGLER_CAUSE, late_for_a_lock), (Stage.STRAGGLER_CAUSE, waits_for_a_lock))
