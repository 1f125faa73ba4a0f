"""Asks the rules of the run, stage by stage, about the evidence of one moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Optional

from ddplaunch.agent.contract import JobEvidence, Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.diagnosis.rules import declared_rules
from ddplaunch.agent.diagnosis.run import devices, ended, nccl_ras, progress, rendezvous, worlds
from ddplaunch.agent.diagnosis.run.causes import before_timeouts
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.stages import CERTAIN, ENDS, GONE, STANDSTILL, STRAGGLERS, Stage

_RULES = sorted(declared_rules("run"), key=lambda rule: rule[0])
ALARM = 0.7
"""Share of the patience for which every rank must have been quiet, by the evidence itself, for an alarm."""


def judge(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return what is wrong, what must be mended first standing first; empty when nothing is.

    Deaths come before waits, waits before slowness; `unknown` when something is wrong and no rule knows it.
    `complain` gets the failure of a rule: see `rule_runner`. A job that has died ends all the same.
    """
    return rule_runner.run(_judged, evidence, complain, "run")


def _judged(evidence: JobEvidence) -> list[Verdict]:
    found = [each for one in worlds.situations(evidence) for each in _of(one)]
    known = [each for each in found if each.code != "unknown"]
    return known or found[:1]


def _of(view: JobView) -> list[Verdict]:
    return nccl_ras.with_facts(view, worlds.with_unseen(view, _of_world(view)))


def _of_world(view: JobView) -> list[Verdict]:
    evidence = view.evidence
    if rendezvous.explains_the_ends(view):
        verdict = rendezvous.never_meet(view)
        if verdict is not None:
            return [verdict]
    verdict = _first(ENDS, view)
    if verdict is not None:
        return [verdict]
    hung = evidence.why in ("still", "deadline") or (
        bool(view.alive) and progress.nothing_moves(view, evidence.notice_after)
    )
    died = evidence.why == "death" or any(_badly_ended(view, rank) for rank in view.ranks)
    if hung or died or view.stuck_for >= evidence.notice_after:
        verdict = _first(CERTAIN, view)
        if verdict is not None:
            return [verdict]
    if hung and evidence.why != "death":
        return _why_nothing_moves(view)
    if died:
        return _why_some_died(view)
    verdict = _first((Stage.SLOW,), view) if evidence.why == "asked" else None
    return [verdict] if verdict is not None else []


def never_meet(evidence: JobEvidence, complain: Complain = None) -> list[Verdict]:
    """Return the verdicts on calls of init_process_group that have just been made."""
    return rule_runner.run(_never_meet, evidence, complain, "run")


def _never_meet(evidence: JobEvidence) -> list[Verdict]:
    verdict = rendezvous.never_meet(JobView(evidence))
    return [] if verdict is None else [verdict]


def is_odd_start(evidence: JobEvidence) -> bool:
    """Whether calls of init_process_group are worth a look at all nodes; see `rendezvous`."""
    return rendezvous.worth_a_look(JobView(evidence))


def nothing_moves(evidence: JobEvidence) -> bool:
    """Whether fresh evidence bears out that nothing moves. Some of the patience passes while it is taken.

    At the deadline a rank that burns CPU without anything new has had its time, and so has a GPU.
    """
    busy = 1.0 if evidence.why == "deadline" else progress.BUSY
    patience = ALARM * evidence.notice_after
    views = worlds.situations(evidence)
    return all(progress.nothing_moves(one, patience, busy) for one in views) and not _computing_for(views)


def computing_for(evidence: JobEvidence) -> float:
    """Return the seconds for which GPUs that may compute are not called stuck yet; 0: there are none."""
    return _computing_for(worlds.situations(evidence))


def _computing_for(views: Sequence[JobView]) -> float:
    left = [
        progress.BUSY * ALARM * one.evidence.notice_after - one.stuck_for
        for one in views
        if one.evidence.why != "deadline" and devices.may_compute(one)
    ]
    return max([0.0, *left])


def _why_nothing_moves(view: JobView) -> list[Verdict]:
    verdict = _first(STANDSTILL, view)
    if verdict is not None:
        return [verdict]
    return _stragglers(view) or [rendezvous.may_never_meet(view) or progress.unknown(view)]


def _why_some_died(view: JobView) -> list[Verdict]:
    """Return verdicts on ranks that died without a fault of their own: a rank for which others waited."""
    verdict = _first(GONE, view)
    if verdict is not None:
        return [verdict]
    before = before_timeouts(view.evidence)
    found = [] if before is None else _stragglers(JobView(before))
    return found or [ended.victims_alone(view) or progress.unknown(view)]


def _first(stages: Collection[int], view: JobView) -> Optional[Verdict]:
    """Return the verdict of the first rule of these stages that does not abstain."""
    return next((found for stage, rule in _RULES if stage in stages and (found := rule(view))), None)


def _stragglers(view: JobView) -> list[Verdict]:
    found = []
    for stage, rule in _RULES:
        verdict = rule(view) if stage in STRAGGLERS else None
        if verdict is not None:
            found.append(nccl_ras.doubted(view, verdict))
            view.explained.update(verdict.ranks)
    return found


def _badly_ended(view: JobView, number: int) -> bool:
    end = view.ranks[number].exit
    return end is not None and not end.by_us and bool(end.code or end.signal)
