"""Sends and receives that wait for one another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import in_collective, in_evaluate, job, only, rank
from tests.agent.diagnosis.run.build_blocked import call, messaging

from ddplaunch.agent.contract import Collective, Frame, Group, JobEvidence, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run.decide import judge

ALL = [0, 1, 2]


def codes(evidence: JobEvidence) -> set[str]:
    """Of all verdicts."""
    return {verdict.code for verdict in judge(evidence)}


def in_barrier(number: int, *calls: Collective) -> RankEvidence:
    """A rank in the sixth collective of the default group, which the others have not called."""
    barrier = call("barrier", 6, 40, "entered")
    groups = [Group("0", ALL, 6, 5, "default_pg")]
    return rank(number, in_collective("barrier", 40), calls=[*calls, barrier], groups=groups)


def test_a_ring_in_which_all_receive() -> None:
    """All are to blame; the circle is drawn from the rank that was blocked first."""
    ranks = [messaging(n, call("recv", 9 - n, 30, "entered", peer=(n + 1) % 3)) for n in ALL]
    verdict = only(job(*ranks, per_node=3))

    assert ("p2p-deadlock", ALL, []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "ranks wait in a circle: 2 → 0 → 1 → 2: rank 2 is in recv from rank 0 (train.py:30), rank 0 is in "
        "recv from rank 1 (train.py:30), rank 1 is in recv from rank 2 (train.py:30)"
    ) == verdict.sentence
    assert "batch_isend_irecv" in verdict.hint


def test_two_that_wait_for_different_tags() -> None:
    """The reason is told; who waits for them elsewhere is a victim."""
    sends = messaging(0, call("isend", 6, 16, "waiting", peer=1, tag=7))
    receives = messaging(1, call("irecv", 6, 22, "waiting", peer=0, tag=8))
    verdict = only(job(sends, receives, in_barrier(2), per_node=3))

    assert ("p2p-deadlock", [0, 1], [2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith("the tags differ, 7 is sent and 8 is received")


def stage(number: int, rounds: int, sends: bool) -> list[Collective]:
    """Rounds of a stage of a pipeline: it sends to the next, and receives the gradient."""
    calls = []
    for turn in range(rounds):
        if sends or turn < rounds - 1:
            calls.append(call("send", 2 * turn + 1, 15, peer=number + 1))
        last = turn == rounds - 1
        calls.append(call("irecv", 2 * turn + 2, 20, "waiting" if last else "waited", peer=number + 1))
    return calls


def test_a_stage_that_leaves_out_its_send_is_named_alone() -> None:
    """It has sent in each round before; the others do as always."""
    sender = messaging(0, *stage(0, 5, sends=False))
    receiver = messaging(
        1, *(call("recv", n + 1, 10, peer=0) for n in range(4)), call("recv", 5, 10, "entered", peer=0)
    )
    verdict = only(job(sender, receiver, in_barrier(2), per_node=3))

    assert ("p2p-deadlock", [0], [1, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith("rank 0 has left out its send to rank 1 (train.py:15)")


def test_two_rounds_are_too_few_to_tell_who_left_out_something() -> None:
    """Both are named."""
    sender = messaging(0, *stage(0, 3, sends=False))
    receiver = messaging(
        1, *(call("recv", n + 1, 10, peer=0) for n in range(2)), call("recv", 3, 10, "entered", peer=0)
    )

    assert [0, 1] == only(job(sender, receiver, per_node=2)).ranks


def test_a_receive_whose_sender_is_in_a_barrier() -> None:
    """The barrier lacks the receiver, and the receiver a message: either of the two is wrong."""
    receives = messaging(0, call("recv", 1, 30, "entered", peer=1))
    verdict = only(job(receives, in_barrier(1), in_barrier(2), per_node=3))

    assert ("p2p-deadlock", [0, 1], [2], 0.8) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )


def test_who_computes_may_still_send() -> None:
    """A receive from a rank in its own code is no deadlock."""
    receives = messaging(0, call("recv", 1, 30, "entered", peer=1))

    assert "p2p-deadlock" not in codes(job(receives, rank(1, in_evaluate(), called=5)))


@pytest.mark.parametrize("sent", [1, 3])
def test_a_message_that_was_sent_is_not_waited_for(sent: int) -> None:
    """It may be the network that loses it; of older calls the last are enough to see it."""
    sends = messaging(
        0, call("isend", sent, 16, "issued", peer=1), call("recv", sent + 1, 17, "entered", peer=1)
    )
    receives = messaging(1, call("recv", sent, 22, "entered", peer=0))

    assert "p2p-deadlock" not in codes(job(sends, receives))


def test_a_message_that_was_received_already_is_none_for_the_next() -> None:
    """Where all calls are known they are counted: what was issued first has had its receive."""
    sends = messaging(0, call("isend", 1, 16, "issued", peer=1), call("recv", 2, 17, "entered", peer=1))
    receives = messaging(1, call("recv", 1, 21, peer=0), call("recv", 2, 22, "entered", peer=0))

    assert {"p2p-deadlock"} == codes(job(sends, receives))


def test_another_thread_may_send() -> None:
    """One that runs the user's code; a library's own does not."""
    ranks = [messaging(n, call("recv", 1, 30, "entered", peer=1 - n)) for n in (0, 1)]
    sender = Stack("sender", False, [Frame("run", "/job/sender.py", 8)])
    package = Stack("monitor", False, [Frame("run", "/opt/lib/python3.11/site-packages/tqdm/_monitor.py", 8)])
    threaded = [replace(ranks[0], stacks=[*ranks[0].stacks, other]) for other in (sender, package)]

    assert ["unknown", "p2p-deadlock"] == [only(job(one, ranks[1])).code for one in threaded]


def test_nothing_is_told_of_a_receive_from_anybody() -> None:
    """Whoever comes may serve it."""
    receives = [messaging(n, call("recv", 1, 30, "entered", peer=-1)) for n in (0, 1)]

    assert {"unknown"} == codes(job(*receives))


def test_a_rank_that_was_not_seen_proves_nothing() -> None:
    """Its node may have sent, or be about to."""
    receives = messaging(0, call("recv", 1, 30, "entered", peer=2))
    evidence = replace(job(receives, in_barrier(1)), silent=[1], nodes=2, world_size=3)

    assert "p2p-deadlock" not in codes(evidence)
