"""Operations that a rank began and never waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import dead, job, only, rank, victim
from tests.agent.diagnosis.run.build_blocked import call, messaging

from ddplaunch.agent.contract import Collective, JobEvidence

RECV = call("recv", 1, 20, "raised", peer=1)
ISEND = call("isend", 1, 17, "issued", peer=0)


def ended(*its: Collective, peers: tuple[Collective, ...] = (RECV,)) -> JobEvidence:
    """Rank 0 failed in the last of `peers`; ranks 1 and 2 have ended well, rank 1 after the calls `its`."""
    return job(
        replace(victim(0, 3.0), calls=list(peers)),
        dead(1, 0.0, code=0, calls=list(its)),
        dead(2, 0.0, code=0),
        why="death",
        per_node=3,
    )


def test_a_send_that_was_never_waited_for() -> None:
    """The rank that ended well is named, with its line; another that did so has nothing to do with it."""
    verdict = only(ended(ISEND))

    assert ("async-not-waited", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 began isend to rank 0 (train.py:17), never waited for it, and ended (exit code 0): rank 0 "
        "needs it in recv from rank 1 (train.py:20)"
    ) == verdict.sentence


def test_the_peer_may_still_wait() -> None:
    """Where it has not noticed yet that the other is gone."""
    waits = messaging(0, replace(RECV, state="entered"))
    evidence = job(waits, dead(1, 0.0, code=0, calls=[ISEND]), per_node=2)

    assert ("async-not-waited", [1], [0]) == ((v := only(evidence)).code, v.ranks, v.victims)


def test_a_collective_by_its_number() -> None:
    """Rank 1 has called the same one, asynchronously."""
    mine = call("all_reduce", 9, 70, "issued")
    others = call("all_reduce", 9, 72, "raised")
    members = rank(0).groups[0]
    evidence = ended(mine, peers=(others,))
    node = evidence.evidence[0]
    group = [replace(members, ranks=[0, 1, 2])]
    ranks = [replace(node.ranks[0], groups=group), *node.ranks[1:]]
    evidence = replace(evidence, evidence=[replace(node, ranks=ranks)])

    assert ("async-not-waited", [1]) == ((v := only(evidence)).code, v.ranks)


@pytest.mark.parametrize(
    ("its", "peers"),
    [
        ((replace(ISEND, state="waited"),), (RECV,)),  # it was waited for
        ((replace(ISEND, tag=5),), (RECV,)),  # it is another message
        ((ISEND,), (replace(RECV, state="returned"), replace(RECV, seq=2))),  # which the first receive had
        ((replace(ISEND, seq=40),), (replace(RECV, seq=40),)),  # earlier calls are not known
        ((), (RECV,)),
    ],
)
def test_an_operation_that_does_not_belong_to_the_peers(
    its: tuple[Collective, ...], peers: tuple[Collective, ...]
) -> None:
    """The rank has only ended early."""
    assert "rank-exited-early" == only(ended(*its, peers=peers)).code


def test_a_rank_that_failed_has_another_cause() -> None:
    """What it left open follows from it."""
    failed = dead(1, 0.0, code=3, calls=[ISEND])
    evidence = job(replace(victim(0, 3.0), calls=[RECV]), failed, why="death")

    assert "rank-failed" == only(evidence).code


def test_an_end_that_was_not_seen_is_not_told_as_a_good_one() -> None:
    """Its exit code is not known."""
    evidence = job(replace(victim(0, 3.0), calls=[RECV]), dead(1, 0.0, calls=[ISEND]), why="death")

    assert "async-not-waited" != only(evidence).code
