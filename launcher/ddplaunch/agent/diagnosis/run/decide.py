"""The rules of the run in their order, over the evidence of one moment."""

from __future__ import annotations

from ddplaunch.agent.contract import JobEvidence, Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.diagnosis.run import (
    collectives,
    ended,
    mpi,
    node_lost,
    progress,
    rendezvous,
    stopped,
    stopped_outside,
    waiting,
    worlds,
)
from ddplaunch.agent.diagnosis.run.causes import before_timeouts
from ddplaunch.agent.diagnosis.run.job_view import JobView

ENDS = (
    node_lost.network_lost,
    collectives.mismatch_in_words,
    mpi.unmatched_in_words,
    stopped_outside.stopped,
    ended.launch_failed,
    ended.rank_killed_memory,
    ended.rank_killed,
    ended.rank_failed,
)
"""A rank's own end explains everything after it; the first rule that speaks is enough."""
CERTAIN = (waiting.exception_swallowed, collectives.collective_mismatch)
"""Ranks out of step never meet again, whatever else moves."""
ALARM = 0.7
"""Share of the patience for which every rank must have been quiet, by the evidence itself, for an alarm."""
OF_MPI = (mpi.rank_lost, mpi.deadlock, mpi.partial_collective, mpi.unmatched)
"""But for the first they speak only when nobody is anywhere but in MPI: else the holders are to blame."""
HOLDERS = (waiting.rank_late_to_init, waiting.rank_in_dataloader, waiting.rank_in_user_code)
"""Each speaks of its own holders: all that speak are told."""


def judge(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return what is wrong, what must be mended first standing first; empty when nothing is.

    Deaths come before waits, waits before slowness; `unknown` when something is wrong and no rule knows it.
    `complain`: see `guard`. A job that has died is to end, whatever mistake of ours its evidence brings up.
    """
    return rule_runner.told(_judged, evidence, complain, "run")


def _judged(evidence: JobEvidence) -> list[Verdict]:
    found = [each for one in worlds.situations(evidence) for each in worlds.with_unseen(one, _of_world(one))]
    known = [each for each in found if each.code != "unknown"]
    return known or found[:1]


def _of_world(view: JobView) -> list[Verdict]:
    evidence = view.evidence
    if rendezvous.explains_the_ends(view):
        verdict = rendezvous.never_meet(view)
        if verdict is not None:
            return [verdict]
    for rule in ENDS:
        verdict = rule(view)
        if verdict is not None:
            return [verdict]
    hung = evidence.why in ("still", "deadline") or (
        bool(view.alive) and progress.nothing_moves(view, evidence.notice_after)
    )
    died = evidence.why == "death" or any(_badly_ended(view, rank) for rank in view.ranks)
    if hung or died or view.stuck_for >= evidence.notice_after:
        for rule in CERTAIN:
            verdict = rule(view)
            if verdict is not None:
                return [verdict]
    if hung and evidence.why != "death":
        return _why_nothing_moves(view)
    if died:
        return _why_some_died(view)
    verdict = progress.slow(view) if evidence.why == "asked" else None
    return [verdict] if verdict is not None else []


def never_meet(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return the verdicts on calls of init_process_group that have just been made."""
    return rule_runner.told(_never_meet, evidence, complain, "run")


def _never_meet(evidence: JobEvidence) -> list[Verdict]:
    verdict = rendezvous.never_meet(JobView(evidence))
    return [] if verdict is None else [verdict]


def is_odd_start(evidence: JobEvidence) -> bool:
    """Whether calls of init_process_group are worth a look at all nodes; see `rendezvous`."""
    return rendezvous.worth_a_look(JobView(evidence))


def nothing_moves(evidence: JobEvidence) -> bool:
    """Whether fresh evidence bears out that nothing moves. Some of the patience passes while it is taken.

    At the deadline a rank that burns CPU without anything new has had its time.
    """
    busy = 1.0 if evidence.why == "deadline" else progress.BUSY
    patience = ALARM * evidence.notice_after
    return all(progress.nothing_moves(one, patience, busy) for one in worlds.situations(evidence))


def _why_nothing_moves(view: JobView) -> list[Verdict]:
    for rule in (stopped.rank_stopped, *OF_MPI, ended.rank_exited_early, collectives.new_group_partial):
        verdict = rule(view)
        if verdict is not None:
            return [verdict]
    found = _holders(view)
    if not found:
        verdict = rendezvous.may_never_meet(view) or progress.unknown(view)
        found = [verdict]
    return found


def _why_some_died(view: JobView) -> list[Verdict]:
    """Nobody by a fault of its own. A rank that works is to blame if others have waited in vain for it."""
    for rule in (mpi.rank_lost, ended.rank_exited_early):
        verdict = rule(view)
        if verdict is not None:
            return [verdict]
    before = before_timeouts(view.evidence)
    found = [] if before is None else _holders(JobView(before))
    return found or [ended.victims_alone(view) or progress.unknown(view)]


def _holders(view: JobView) -> list[Verdict]:
    return [verdict for rule in HOLDERS if (verdict := rule(view)) is not None]


def _badly_ended(view: JobView, number: int) -> bool:
    end = view.ranks[number].exit
    return end is not None and not end.by_us and bool(end.code or end.signal)
