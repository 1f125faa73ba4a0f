"""Sends and receives that wait for one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import dead, in_collective, in_evaluate, job, only, raised, rank, victim
from tests.agent.diagnosis.run.build_blocked import call, meeting, messaging

from ddplaunch.agent.contract import Collective, Frame, Group, JobEvidence, RankEvidence, Stack, Verdict
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


@pytest.mark.parametrize(("met", "confidence"), [(True, 0.7), (False, 0.95)])
def test_sends_that_have_met_their_peers_before_do_not_say_whose_count_is_wrong(
    met: bool, confidence: float
) -> None:
    """Ranks that all send first hang in their first round."""
    ranks = [
        messaging(
            n,
            replace(call("send", 1, 30 + n, "returned", peer=1 - n), done=met),
            call("recv", 2, 40 + n, "returned", peer=1 - n),
            call("send", 3, 30 + n, "entered", peer=1 - n),
        )
        for n in (0, 1)
    ]
    verdict = only(job(*ranks, per_node=2))

    assert ("p2p-deadlock", [0, 1], confidence) == (verdict.code, verdict.ranks, verdict.confidence)
    assert ("compare how often each side loops" in verdict.hint) == met


def averaged(wrong_line: int = 23) -> JobEvidence:
    """Each rank sends to the next and receives from the one before, but rank 1 from rank 2."""

    def calls(number: int, line: int, source: int, *states: str) -> RankEvidence:
        peers = (("isend", (number + 1) % 3), ("irecv", source))
        ops = [(*peers[place % 2], state) for place, state in enumerate(states)]
        its = [call(op, seq + 1, line, state, peer=peer) for seq, (op, peer, state) in enumerate(ops)]
        return messaging(number, *its)

    return job(
        calls(0, 23, 2, "waiting", "issued"),
        calls(1, wrong_line, 2, "waited", "waiting"),
        calls(2, 23, 1, "waited", "waited", "waiting", "issued"),
        per_node=3,
    )


def test_a_rank_that_receives_from_one_that_never_sends_to_it_is_named_alone() -> None:
    verdict = only(averaged())

    assert ("p2p-deadlock", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith(
        ": rank 1 receives from rank 2, which never sends to it, and not from rank 0, which does"
    )


def test_a_receive_that_is_still_to_come_may_be_the_right_one() -> None:
    """They do not call from the same lines: each may come to the other's call."""
    assert ALL == only(averaged(wrong_line=30)).ranks


def test_two_circles_are_both_to_blame() -> None:
    ranks = [messaging(n, call("send", 1, 61, "entered", peer=n ^ 2)) for n in range(4)]
    verdict = only(job(*ranks, per_node=4))

    assert ([0, 1, 2, 3], []) == (verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith("; others in another: 1 → 3 → 1")


def test_a_send_that_was_begun_with_another_tag_is_no_send_that_comes_after_its_receive() -> None:
    """Of two sends that were begun, it is not known which one the receive is meant for."""
    began = [call("isend", seq, 16, "issued", peer=1, tag=seq) for seq in (6, 7)]
    waits = [call("recv", 8, 17, "entered", peer=1)]
    receives = messaging(1, call("recv", 6, 22, "entered", peer=0, tag=9))
    one, two = (
        only(job(messaging(0, *began[:many], *waits), receives, in_barrier(2), per_node=3)) for many in (1, 2)
    )

    assert one.sentence.endswith(": the tags differ, 6 is sent and 9 is received")
    assert "tags differ" not in two.sentence
    assert "receive first" not in one.hint + two.hint


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


def test_a_worker_that_has_left_the_loop_in_which_others_still_send_is_named_alone() -> None:
    """All send to rank 0, from one line; rank 0 serves them in turn, and waits for one more."""

    def worker(number: int, last: str) -> RankEvidence:
        sends = [call("send", seq, 15, "entered" if seq == 3 else "returned", peer=0) for seq in (1, 2, 3)]
        if last == "barrier":
            sends = [replace(each, state="returned") for each in sends[:2]]
            return replace(in_barrier(number), calls=sends)
        return messaging(number, *sends)

    received = [call("recv", seq, 10, peer=1 + seq % 3) for seq in range(1, 7)]
    server = messaging(0, *received, call("recv", 7, 10, "entered", peer=2))
    verdict = only(job(server, worker(1, "send"), worker(2, "barrier"), worker(3, "send"), per_node=4))

    assert ("p2p-deadlock", [2], [0, 1, 3], 0.8) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert verdict.sentence.endswith(
        ": rank 2 no longer calls send to rank 0 (train.py:15), as ranks 1 and 3 still do"
    )
    alone = only(job(server, in_barrier(1), worker(2, "barrier"), in_barrier(3), per_node=4))
    assert [2] != alone.ranks


def piped(*sends: int) -> list[Collective]:
    """Rounds of a stage that sends so many times in each, then receives four times; it is in a receive."""
    kinds = [kind for many in sends for kind in ["send"] * many + ["recv"] * 4][:-3]
    calls = [call(kind, n, 15 if kind == "send" else 20, peer=1) for n, kind in enumerate(kinds, 1)]
    return [*calls[:-1], call("recv", len(kinds), 20, "entered", peer=1)]


@pytest.mark.parametrize(
    ("sends", "ranks"),
    [((4, 4, 4, 3), [0]), ((4, 4, 4, 4), [0, 1]), ((4, 3, 4, 3), [0, 1]), ((4, 3), [0, 1])],
)
def test_a_stage_that_sends_fewer_times_than_before_is_named(
    sends: tuple[int, ...], ranks: list[int]
) -> None:
    """Only if it has sent equally often in some rounds before: else both are named."""
    received = [call("recv", n, 10, peer=0) for n in range(1, sum(sends) + 1)]
    receiver = messaging(1, *received, call("recv", sum(sends) + 1, 10, "entered", peer=0))
    verdict = only(job(messaging(0, *piped(*sends)), receiver, per_node=2))

    assert ("p2p-deadlock", ranks) == (verdict.code, verdict.ranks)
    assert (ranks == [0]) == (
        "rank 0 called send to rank 1 (train.py:15) 3 times in this round, and 4 times" in verdict.sentence
    )
    assert (ranks == [0]) == ("a loop that it ran fewer times" in verdict.hint)


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


# --- A message that its receive could not hold, beside other words of Gloo.


SAID = (
    "what():  [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. {} vs {}. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"
)


def tensor(length: int, dtype: str = "float32") -> dict[str, Any]:
    """Shape and dtype of a call."""
    return {"sizes": [[length]], "dtypes": [dtype]}


def ended(send: Collective, receive: Collective, sent: int, wanted: int) -> JobEvidence:
    """Rank 1 was ended by Gloo in its receive; rank 0 has sent, and misses it; rank 2 has no part in it."""
    receiver = replace(dead(1, 1, signal=6), last_output=SAID.format(sent, wanted), calls=[receive])
    sender = replace(victim(0), calls=[send])
    return job(sender, receiver, victim(2), per_node=3, why="death")


def verdict_on(send: Collective, receive: Collective, sent: int = 32, wanted: int = 16) -> Verdict:
    """The only one."""
    return only(ended(send, receive, sent, wanted))


def test_a_longer_tensor() -> None:
    """Who of the two is wrong is not known: both are named, with both lines."""
    verdict = verdict_on(
        call("send", 1, 13, peer=1, **tensor(8)), call("recv", 1, 20, "entered", peer=0, **tensor(4))
    )

    assert ("p2p-deadlock", [0, 1], [2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 sent [8] float32 to rank 1 (train.py:13), which receives [4] float32 (train.py:20): "
        "the message is larger than its receive"
    ) == verdict.sentence


def test_a_wider_dtype() -> None:
    """Of the same shape."""
    verdict = verdict_on(
        call("isend", 1, 13, "issued", peer=1, **tensor(4, "float64")),
        call("irecv", 1, 20, "waiting", peer=0, **tensor(4, "float32")),
    )

    assert [0, 1] == verdict.ranks
    assert "rank 0 sent [4] float64 to rank 1" in verdict.sentence
    assert "compare isend to rank 1 (train.py:13) and irecv from rank 0 (train.py:20)" in verdict.hint


@pytest.mark.parametrize(
    ("send", "receive"),
    [
        (tensor(9), tensor(4)),
        (tensor(8), tensor(5)),
        (tensor(8), {"sizes": [[4]]}),
        ({**tensor(8), "tag": 1}, tensor(4)),
        ({**tensor(8), "peer": 2}, tensor(4)),
        (tensor(8), {**tensor(4), "peer": -1}),
    ],
    ids=["other bytes sent", "other bytes wanted", "dtype unknown", "other tag", "to another", "from any"],
)
def test_calls_that_are_not_those_of_the_words(send: dict[str, Any], receive: dict[str, Any]) -> None:
    """Something else was larger: no send is called the cause."""
    verdict = verdict_on(
        call("send", 1, 13, **{"peer": 1, **send}), call("recv", 1, 20, "entered", **{"peer": 0, **receive})
    )

    assert ("collective-mismatch", []) == (verdict.code, verdict.ranks)


def test_two_open_receives_of_the_same_size() -> None:
    """Either may be the one."""
    receives = [call("irecv", n, 20 + n, "issued", peer=2 * n, **tensor(4)) for n in range(2)]
    receiver = replace(dead(1, 1, signal=6), last_output=SAID.format(32, 16), calls=receives)
    senders = [replace(victim(n), calls=[call("send", 1, 13, peer=1, **tensor(8))]) for n in (0, 2)]
    verdict = only(job(senders[0], receiver, senders[1], per_node=3, why="death"))

    assert [] == verdict.ranks


def test_words_of_an_exception_that_the_program_has_handled() -> None:
    """They do not explain why another rank has died since."""
    words = raised("RuntimeError", SAID.format(32, 16), 5, handled=True)
    receive = call("recv", 1, 20, "raised", peer=0, **tensor(4))
    receiver = replace(rank(1), raised=[words], calls=[receive])
    sender = replace(dead(0, 1, signal=9), calls=[call("send", 1, 13, peer=1, **tensor(8))])

    assert "rank-killed" == only(job(sender, receiver, why="death")).code


# --- Operations that a rank began and never waited for.


RECV = call("recv", 1, 20, "raised", peer=1)
ISEND = call("isend", 1, 17, "issued", peer=0)


def ended_after(*its: Collective, peers: tuple[Collective, ...] = (RECV,)) -> JobEvidence:
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
    verdict = only(ended_after(ISEND))

    assert ("async-not-waited", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 began isend to rank 0 (train.py:17), never waited for it, and ended (exit code 0): rank 0 "
        "needs it in recv from rank 1 (train.py:20)"
    ) == verdict.sentence


def test_of_many_sends_that_were_never_waited_for_the_one_that_was_next_is_named() -> None:
    many = [replace(ISEND, seq=number) for number in (1, 2, 3)]
    verdict = only(ended_after(*many, peers=(replace(RECV, seq=1),)))

    assert ("async-not-waited", [1]) == (verdict.code, verdict.ranks)


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
    evidence = ended_after(mine, peers=(others,))
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
    assert "rank-exited-early" == only(ended_after(*its, peers=peers)).code


def test_a_rank_that_failed_has_another_cause() -> None:
    """What it left open follows from it."""
    failed = dead(1, 0.0, code=3, calls=[ISEND])
    evidence = job(replace(victim(0, 3.0), calls=[RECV]), failed, why="death")

    assert "rank-failed" == only(evidence).code


def test_an_end_that_was_not_seen_is_not_told_as_a_good_one() -> None:
    """Its exit code is not known."""
    evidence = job(replace(victim(0, 3.0), calls=[RECV]), dead(1, 0.0, calls=[ISEND]), why="death")

    assert "async-not-waited" != only(evidence).code


# --- a receive from any rank, for which nobody is left to send


def serving(answered: bool = True, last: str = "barrier", **more: Any) -> JobEvidence:
    """Rank 0 receives from any rank, rank 1 waits for its answer, rank 2 is done and in a barrier."""
    rounds = [call("send", 1, 20, peer=0), call("recv", 2, 21 if answered else 25, peer=0)]
    asking = messaging(
        1, *rounds, call("send", 3, 20, peer=0), call("recv", 4, 21, "entered", peer=0), world=3
    )
    server = messaging(0, call("recv", 1, 10, peer=-1), call("recv", 2, 10, "entered", peer=-1))
    server = replace(server, **more)
    done = meeting(2, "barrier", 30, "0", _0=([0, 1, 2], 6))
    sends = messaging(2, call("send", 1, 20, "entered", peer=0))
    return job(server, asking, done if last == "barrier" else sends, per_node=3)


def test_a_server_that_left_out_an_answer_is_named() -> None:
    verdict = only(serving())

    assert ("p2p-deadlock", [0], 0.8) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "rank 0 is in recv from any rank (train.py:10), and nobody will send: rank 1 is in recv from rank 0 "
        "(train.py:21), rank 2 is in barrier 6 (train.py:30); rank 1 got an answer there before"
        == verdict.sentence
    )
    assert "refused" in verdict.hint


def test_one_that_asks_where_it_never_got_an_answer_may_be_wrong_itself() -> None:
    verdict = only(serving(answered=False))

    assert ("p2p-deadlock", [0, 1], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)


THREAD = Stack("refill", False, [Frame("refill", "/job/train.py", 50)])


@pytest.mark.parametrize(
    "evidence",
    [serving(last="send"), serving(stacks=[*in_collective("recv", 10), THREAD])],
    ids=["another rank sends to it", "a thread of the server may answer"],
)
def test_a_server_that_may_go_on_is_not_named(evidence: JobEvidence) -> None:
    assert all("nobody will send" not in verdict.sentence for verdict in judge(evidence))
