"""The rules on evidence of real ranks with torch before 2.8, which keeps no record of calls with Gloo.

`recorded/torch-VERSION` has what `python -m tests.corpus --keep` has left with that version.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest
from tests.corpus.cases import cases
from tests.corpus.faults import Fault

from ddplaunch.agent.contract import Frame, JobEvidence, RankEvidence, Stack, Verdict, codec
from ddplaunch.agent.diagnosis.run.decide import judge

RECORDED = Path(__file__).with_name("recorded")
KEPT = sorted(RECORDED.glob("torch-*/*.json"))
FAULTS = {case.name: case.job for case in cases() if isinstance(case.job, Fault)}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_the_cause_is_found_without_records(path: Path) -> None:
    fault = FAULTS[path.stem]
    (verdict,) = judge(codec.read(JobEvidence, str(path)))

    assert (fault.code, [*fault.ranks]) == (verdict.code, verdict.ranks), verdict


VERSIONS = sorted(path.name for path in RECORDED.glob("torch-*"))


def told(name: str, version: str, change: Callable[[RankEvidence], RankEvidence]) -> Verdict:
    """The verdict on this evidence, with each rank changed."""
    evidence = codec.read(JobEvidence, str(RECORDED / version / f"{name}.json"))
    nodes = [replace(node, ranks=[change(rank) for rank in node.ranks]) for node in evidence.evidence]
    (verdict,) = judge(replace(evidence, evidence=nodes))
    return verdict


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_that_all_wait_in_backward_accuse_nobody(version: str) -> None:
    """They are in one step: something below them does not move. Their counts may differ by some buckets."""
    evidence = codec.read(JobEvidence, str(RECORDED / version / "skipped_uneven.json"))
    model = evidence.evidence[0].ranks[0]

    def in_backward(rank: RankEvidence) -> RankEvidence:
        ahead = [replace(group, enqueued=group.enqueued + rank.rank) for group in model.groups]
        return replace(rank, stacks=model.stacks, calls=[], sequences=[], groups=ahead)

    verdict = told("skipped_uneven", version, in_backward)

    assert ("unknown", []) == (verdict.code, verdict.ranks), verdict
    assert "all ranks wait in backward" in verdict.sentence


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rank_that_computes_in_backward_is_not_out_of_step(version: str) -> None:
    """The one in the barrier may only be ahead of it: no group of it has an open collective."""

    def computes(rank: RankEvidence) -> RankEvidence:
        if rank.rank == 2 or rank.process is None:
            return rank
        groups = [replace(group, completed=group.enqueued) for group in rank.groups]
        return replace(rank, groups=groups, process=replace(rank.process, state="R"))

    verdict = told("skipped_uneven", version, computes)

    assert verdict.code not in ("collective-skipped", "collective-mismatch"), verdict


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rank_in_backward_is_not_accused_of_what_may_be_its_wait(version: str) -> None:
    """Where two groups may be DDP's, none counts as open; that it has called less proves nothing."""

    def uncertain(rank: RankEvidence) -> RankEvidence:
        if rank.rank == 2:
            return rank
        return replace(rank, groups=[replace(each, enqueued=25, completed=25) for each in rank.groups])

    verdict = told("skipped_uneven", version, uncertain)

    assert ("unknown", []) == (verdict.code, verdict.ranks), verdict


def with_a_thread(rank: RankEvidence) -> RankEvidence:
    """The same, with a thread of the program's own that sleeps and may call more."""
    frames = [Frame("beat", "/job/train.py", 9)]
    return replace(rank, stacks=[*rank.stacks, Stack("Thread-1", main=False, frames=frames)])


def test_ranks_at_one_number_are_out_of_step_whatever_their_threads_do() -> None:
    verdict = told("skipped_uneven", "torch-2.7.1", with_a_thread)

    assert ("collective-mismatch", [2]) == (verdict.code, verdict.ranks), verdict


def test_a_thread_may_call_what_is_missing_where_the_numbers_differ() -> None:
    def is_behind(rank: RankEvidence) -> RankEvidence:
        less = rank.rank == 2
        groups = [
            replace(each, enqueued=each.enqueued - less, completed=each.completed - less)
            for each in rank.groups
        ]
        return with_a_thread(replace(rank, groups=groups))

    verdict = told("skipped_uneven", "torch-2.7.1", is_behind)

    assert verdict.code not in ("collective-skipped", "collective-mismatch"), verdict


def test_ranks_with_two_open_calls_are_not_compared_by_their_number() -> None:
    """The call in which a rank waits may be its second open one, and the first may be slow everywhere."""

    def two(rank: RankEvidence) -> RankEvidence:
        groups = [replace(each, enqueued=each.completed + 2) for each in rank.groups]
        return with_a_thread(replace(rank, groups=groups))

    verdict = told("skipped_uneven", "torch-2.7.1", two)

    assert verdict.code not in ("collective-skipped", "collective-mismatch"), verdict


def all_alike(rank: RankEvidence) -> RankEvidence:
    """Every member of each group has called as many: what they wait for may only be slow."""
    return replace(rank, groups=[replace(each, enqueued=30, completed=30) for each in rank.groups])


def first_group_alone(rank: RankEvidence) -> RankEvidence:
    """The hook of rank 3 does not count the groups of the mesh, as after a monitored_barrier."""
    return replace(rank, groups=rank.groups[:1]) if rank.rank == 3 else rank


def ahead_in_two(rank: RankEvidence) -> RankEvidence:
    """A rank that is ahead in two groups may wait in either."""
    ahead = 10 if rank.rank in (0, 3) else 0
    groups = [replace(each, enqueued=30 + ahead, completed=30 + ahead) for each in rank.groups]
    return replace(rank, groups=groups)


@pytest.mark.parametrize("change", [all_alike, first_group_alone, ahead_in_two])
def test_the_group_of_a_wait_is_not_guessed(change: Callable[[RankEvidence], RankEvidence]) -> None:
    verdict = told("functional_drops", "torch-2.7.1", change)

    assert ("unknown", []) == (verdict.code, verdict.ranks), verdict


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_whose_calls_are_not_counted_accuse_nobody(version: str) -> None:
    """As after a monitored_barrier."""
    verdict = told("group_half", version, lambda rank: replace(rank, groups=[]))

    assert ("unknown", []) == (verdict.code, verdict.ranks), verdict
    assert "does not record what it sends with Gloo by itself" in verdict.hint


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rank_that_gloo_ends_is_not_accused_where_no_call_is_known(version: str) -> None:
    verdict = told(
        "mismatch_in_shape", version, lambda rank: replace(rank, calls=[], sequences=[], collectives=[])
    )

    assert ("collective-mismatch", []) == (verdict.code, verdict.ranks), verdict
