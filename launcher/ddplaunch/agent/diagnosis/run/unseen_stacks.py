"""Rules about ranks of which no stack could be read: by what their threads, sockets and kernel waits show."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import Posture, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import SLEEP
from ddplaunch.agent.diagnosis.run.stages import Stage
from ddplaunch.agent.diagnosis.run.waiting import CALL_FIRST, KEEP_SHORT, holder_facts, verdict_on
from ddplaunch.agent.system import phrases, subjects

ENTRIES = ()  # the codes are those of `waiting` and `progress`
_LOOKS = 2.0
"""Wake-ups a second: TORCH_NCCL_BLOCKING_WAIT sleeps a millisecond between two looks at its collective."""
_LET_TRACE = f"Only a stack shows where: let py-spy trace. {KEEP_SHORT}"
_POLL = "poll_schedule_timeout"


def not_connected(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that are not where all others meet in init_process_group."""
    late, there = _postures(view, Posture.BEFORE), _postures(view, Posture.INIT)
    has = phrases.one_or(late, "has", "have")
    return _verdict(
        view,
        "rank-late-to-init",
        late,
        there,
        f"{subjects.ranks(late)} {has} no connection to the job's store, unlike {subjects.ranks(there)}: "
        "init_process_group was not called, or with another address",
        CALL_FIRST,
    )


def in_no_collective(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks in whose process Gloo does nothing, while it waits in all others."""
    own, there = _postures(view, Posture.OWN), _postures(view, Posture.COLLECTIVE)
    are = phrases.one_or(own, "is", "are")
    return _verdict(
        view,
        "rank-in-user-code",
        own,
        there,
        f"{subjects.ranks(own)} {are} in no collective of Gloo, unlike {subjects.ranks(there)}; "
        "no stack shows the line",
        _LET_TRACE,
    )


def asleep(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that sleep for something of their own.

    A rank that waits in a collective sleeps for a futex. One that has slept for seconds in a call of the
    system that no collective makes is in its own code, and one that polls is in its data loader if it has
    one.
    """
    processes = {
        rank: its
        for rank in view.alive
        if (its := view.ranks[rank].process) is not None and its.state == "S" and not view.ranks[rank].stacks
    }
    sleeps = {rank: its.wchan.partition(".")[0] for rank, its in processes.items()}
    ranks = [
        rank
        for rank, function in sleeps.items()
        if (SLEEP.fullmatch(function) or (function == _POLL and _has_loaders(view.ranks[rank])))
        and processes[rank].wakeups < _LOOKS
        and view.ranks[rank].stuck_for >= view.evidence.notice_after
        and rank not in view.explained
    ]
    others = [rank for rank in sleeps if sleeps[rank].startswith("futex_")]
    wait = ", ".join(sorted({sleeps[rank] for rank in ranks}))
    sleep, wait_too = phrases.one_or(ranks, "sleeps", "sleep"), phrases.one_or(others, "waits", "wait")
    return _verdict(
        view,
        "rank-in-dataloader" if all(sleeps[rank] == _POLL for rank in ranks) else "rank-in-user-code",
        ranks,
        others,
        f"{subjects.ranks(ranks)} {sleep} in the kernel ({wait}), "
        f"where no collective waits, while {subjects.ranks(others)} {wait_too} "
        f"for another thread or rank; no stack shows the line",
        _LET_TRACE,
    )


def _has_loaders(rank: RankEvidence) -> bool:
    return any(each.role == "loader" for each in rank.children)


def runs_on(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that run outside of collectives while the others have waited for long."""
    found = in_no_collective(view)
    patience = view.evidence.notice_after
    if found is None or any(view.ranks[rank].still_for < patience for rank in found.victims):
        return None
    return replace(found, code="slow", sentence=f"not known to hang: {found.sentence}")


def _postures(view: JobView, posture: str) -> list[int]:
    return [
        rank
        for rank in view.alive
        if view.ranks[rank].posture == posture and not view.ranks[rank].stacks and rank not in view.explained
    ]


def _verdict(
    view: JobView, code: str, ranks: list[int], victims: list[int], sentence: str, hint: str
) -> Optional[Verdict]:
    """Return the verdict; None where these are not all ranks, or one at fault may wait for another of them.

    Those sleep in different places.
    """
    if not ranks or not victims or sorted([*ranks, *victims]) != view.world:
        return None
    if len({its.wchan for rank in ranks if (its := view.ranks[rank].process) is not None}) > 1:
        return None
    found = verdict_on(view, code, ranks, sentence, holder_facts(view, ranks), hint, 0.6)
    return replace(found, victims=victims)


RULES = (
    (Stage.STRAGGLER, not_connected),
    (Stage.STRAGGLER, asleep),
    (Stage.STRAGGLER, in_no_collective),
    (Stage.SLOW, runs_on),
)
