"""Ranks that were not seen, and several worlds in one job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import call, in_collective, in_evaluate, in_init, job, only, rank

from ddplaunch.agent.contract import Exited, JobEvidence, RankEvidence, Rendezvous
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.agent.diagnosis.run.decide import judge, nothing_moves


def open_world(*ranks: RankEvidence, size: int = 4) -> JobEvidence:
    """A job of which ddplaunch did not lay out the ranks, whose groups have `size` members."""
    found = job(*(replace(each, world_size=size) for each in ranks))
    return replace(found, world_size=None)


def met(number: int, port: int, launcher: int, **more: Any) -> RankEvidence:
    """A rank of the world that meets at this port."""
    made = Rendezvous("env", 1.0, "127.0.0.1", port, rank=number, world_size=2, passed=True)
    pid = port + number
    return replace(rank(number, world_size=2, launcher=launcher, rendezvous=made, **more), pid=pid)


def test_half_of_the_ranks_prove_nothing_about_the_network() -> None:
    """All that were seen wait: what keeps them may run elsewhere, and the sentence says who was seen."""
    verdict = only(open_world(rank(0), rank(1)))

    assert ("unknown", [], 0.0) == (verdict.code, verdict.ranks, verdict.confidence)
    assert verdict.sentence.endswith(
        "(2 of 4 ranks seen; ranks 2 and 3 have not started, or run where ddplaunch does not look)"
    )
    assert "network" not in verdict.hint


def test_a_holder_that_was_seen_is_named_and_the_unseen_are_said() -> None:
    """What was seen stands, whoever else there is."""
    verdict = only(open_world(rank(0), rank(1, in_evaluate(), called=16)))

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert "2 of 4 ranks seen" in verdict.sentence


def test_ranks_that_were_not_seen_are_not_late() -> None:
    """They may have called init_process_group where nobody looks."""
    before: dict[str, Any] = {"groups": [], "initialized": False}

    assert "unknown" == only(open_world(rank(0, in_init(), **before), rank(1, in_init(), **before))).code


def test_a_majority_that_the_unseen_could_turn_accuses_none_of_its_opponents() -> None:
    """Two against one, and five were not seen: the calls are told, and no rank is accused."""
    calls = [[call(17, "all_reduce")], [call(17, "all_reduce")], [call(17, "broadcast")]]
    ranks = [rank(number, in_collective(), collectives=calls[number]) for number in range(3)]

    undecided = only(open_world(*ranks, size=8))
    assert ("collective-mismatch", [], 0.5) == (undecided.code, undecided.ranks, undecided.confidence)
    assert [2] == only(open_world(*ranks, size=3)).ranks


def test_a_tie_that_a_silent_rank_would_decide_accuses_none() -> None:
    """One against one, and the third lives without a record: it may have called what either did."""
    calls = [[call(17, "all_reduce")], [call(17, "broadcast")], []]
    ranks = [rank(number, in_collective(), collectives=calls[number]) for number in range(3)]

    undecided = only(open_world(*ranks, size=3))
    assert ("collective-mismatch", [], 0.5) == (undecided.code, undecided.ranks, undecided.confidence)
    assert [0, 1] == only(open_world(*ranks[:2], size=2)).ranks


def test_all_are_seen_and_nothing_is_added() -> None:
    """A world of two with two ranks is whole."""
    assert "seen" not in only(open_world(rank(0), rank(1), size=2)).sentence


def test_two_torchruns_side_by_side_are_judged_one_by_one() -> None:
    """The ranks of the one that moves do not hide the hang of the other, nor share its numbers."""
    hangs = [met(0, 29501, 11), met(1, 29501, 11, stacks=in_evaluate(), called=16)]
    also_waits = [met(0, 29502, 12), met(1, 29502, 12)]
    found = judge(replace(job(*hangs, *also_waits), world_size=None))

    assert [("rank-in-user-code", [1])] == [(each.code, each.ranks) for each in found]


def test_a_world_that_has_ended_well_does_not_hide_the_hang_of_the_next() -> None:
    """Scripts start one torchrun after another; what is over moves no more, and hangs no more."""
    done = {"alive": False, "exit": Exited(1.0, 0), "stacks": []}
    over = [met(0, 29501, 11, **done), met(1, 29501, 11, **done)]
    hangs = [met(0, 29502, 12), met(1, 29502, 12, stacks=in_evaluate(), called=16)]
    evidence = replace(job(*over, *hangs), world_size=None)

    assert nothing_moves(evidence)
    assert [("rank-in-user-code", [1])] == [(each.code, each.ranks) for each in judge(evidence)]


def test_ranks_that_claim_one_number_in_one_place_are_one_world() -> None:
    """Such a world cannot meet, and that is another rule's finding."""
    waiting = [replace(met(0, 29501, 11), pid=5), replace(met(0, 29501, 11), pid=6)]

    assert 1 == len(decide.split(job(*waiting)))
