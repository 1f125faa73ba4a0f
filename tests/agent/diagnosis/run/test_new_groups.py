"""Groups that only some of the ranks make."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.diagnosis.build import C10D, in_collective, in_evaluate, job, only, rank, stack

from ddplaunch.agent.contract import Frame, RankEvidence


def makes_group(number: int) -> RankEvidence:
    """A rank that stands in new_group."""
    return rank(number, stack(Frame("_store_based_barrier", C10D, 900), Frame("new_group", C10D, 5000)))


def test_new_group_is_waiting() -> None:
    """A rank that makes a group waits for the others, as in a collective."""
    verdict = only(job(makes_group(0), rank(1, in_evaluate(), called=16)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "the other waits in new_group" in verdict.sentence


def test_ranks_that_wait_elsewhere_are_missing_from_new_group() -> None:
    """Those who are not in the group must call it as well; whose branch is wrong stays open."""
    others = [rank(n, in_collective("barrier", 60), called=3) for n in (2, 3)]
    verdict = only(job(makes_group(0), makes_group(1), *others))

    assert ("group-partial", [2, 3], [0, 1], 0.5) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert verdict.sentence.startswith("new_group")
    assert "has ranks 0 and 1 and lacks ranks 2 and 3: ranks 2 and 3 are in barrier" in verdict.sentence


def test_a_group_that_all_make_lacks_nobody() -> None:
    """Then the network keeps them, or ranks that were not seen."""
    assert "unknown" == only(job(makes_group(0), makes_group(1))).code
    unseen = replace(rank(1, in_collective("barrier", 60)), world_size=4)
    assert "unknown" == only(replace(job(makes_group(0), unseen), world_size=None)).code
