"""Ranks that ended for want of another: who held them up, by what the dying said."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.diagnosis.build import (
    NOW,
    PEER_GONE,
    call,
    dead,
    in_collective,
    in_evaluate,
    in_loader,
    job,
    only,
    raised,
    rank,
    victim,
)

from ddplaunch.agent.contract import Exited, RankEvidence


def test_watchdog_that_gives_up_is_a_victim() -> None:
    """NCCL's watchdog aborts the waiting rank; the one that waits nowhere is to blame."""
    text = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"
    evidence = job(
        dead(0, 0, signal=6, last_output=f"  what():  {text}"), rank(1, in_evaluate(), called=16), why="death"
    )

    verdict = only(evidence)

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)


def test_timed_out_peers_do_not_hide_the_rank_that_hangs() -> None:
    """With a short timeout the victims die first; the living rank in its own code is at fault."""
    text = "Timed out waiting 8000ms for recv operation to complete"
    gone = [dead(n, n, code=1, raised=[raised("RuntimeError", text, n)], groups=[]) for n in (0, 1, 2)]
    verdict = only(job(*gone, rank(3, in_evaluate(), called=16), why="death"))

    assert ("rank-in-user-code", [3]) == (verdict.code, verdict.ranks)


def test_mismatch_told_by_the_dying() -> None:
    """Gloo aborts on another size; the flight recorders of those that still answered name the odd rank."""
    words = "Received data size doesn't match. Is there a distributed collective mismatch in your code?"
    said = dead(1, 0, signal=6, last_output=f"  what():  {words}")
    with_records = job(
        rank(0, collectives=[call(17, "all_reduce", [16])]),
        said,
        rank(2, collectives=[call(17, "all_reduce", [64])]),
        rank(3, collectives=[call(17, "all_reduce", [16])]),
        why="death",
    )
    without = job(victim(0), said, why="death")

    assert ("collective-mismatch", [2], [0, 1, 3]) == (
        only(with_records).code,
        only(with_records).ranks,
        only(with_records).victims,
    )
    assert ("collective-mismatch", [], [], 0.5) == (
        only(without).code,
        only(without).ranks,
        only(without).victims,
        only(without).confidence,
    )


def test_mismatch_told_by_detail() -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL stops all ranks with both calls in words: the odd one is named."""

    def said(number: int, op: str, peer: int, other: str) -> RankEvidence:
        shape = "TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default)))"
        mine, his = (
            f"CollectiveFingerPrint(SequenceNumber=5, OpType={each}, {shape}" for each in (op, other)
        )
        message = (
            f"Detected mismatch between collectives on ranks. Rank {number} is running collective: {mine}, "
            f"but Rank {peer} is running collective: {his}."
        )
        return dead(number, 0, code=1, raised=[raised("RuntimeError", message, 0, line=10 + number)])

    verdict = only(
        job(
            said(0, "ALLREDUCE", 2, "BROADCAST"),
            said(1, "ALLREDUCE", 0, "ALLREDUCE"),
            said(2, "BROADCAST", 0, "ALLREDUCE"),
            per_node=3,
            why="death",
        )
    )

    assert ("collective-mismatch", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "at collective 5 rank 2 called broadcast [4] (train.py:12)" in verdict.sentence


def test_a_rank_that_was_sent_away_held_the_others_up() -> None:
    """Peers gave up after a timeout, and torchrun ended the rank that held them: its last stack tells."""
    text = "Timed out waiting 5000ms for recv operation to complete"
    frames = in_collective()[0].frames
    gave_up = [
        dead(n, 1, code=1, raised=[replace(raised("RuntimeError", text, 1), frames=frames)]) for n in (0, 1)
    ]
    held = replace(rank(2, in_loader(), called=16), alive=False, exit=Exited(NOW, signal=15, by_us=True))
    verdict = only(job(*gave_up, held, per_node=3, why="death"))

    assert ("rank-in-dataloader", [2], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_rank_that_works_is_not_blamed_for_a_broken_connection() -> None:
    """Somewhere a peer went away; that a rank stood in its own code at that moment means nothing."""
    verdict = only(
        job(victim(0), rank(1, in_evaluate(), called=16, still_for=0.0, stuck_for=0.5), why="death")
    )

    assert ("rank-failed", [], 0.4) == (verdict.code, verdict.ranks, verdict.confidence)


def test_sigterm_while_its_exception_was_told() -> None:
    """A victim that torchrun ended while it raised is no second culprit of the SIGTERM that began it all."""
    began = dead(2, 0, signal=15)
    hit = dead(3, 0.6, signal=15, raised=[raised("RuntimeError", PEER_GONE, 0.1)])
    verdict = only(job(victim(0), victim(1), began, hit, why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert verdict.sentence.startswith("rank 2 ended by SIGTERM")


def test_victims_without_a_known_cause() -> None:
    """When every failure is another's fault and no rank's own is known, no rank is accused."""
    verdict = only(job(victim(0, 2.0), victim(1, 1.0), why="death"))

    assert ("rank-failed", [], [], [0, 1]) == (verdict.code, verdict.nodes, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 1 was the first to fail")
    assert "another rank is at fault, and none is known" in verdict.sentence


def test_an_end_that_was_not_seen_stands_beside_its_victims() -> None:
    """A supervisor that was away for a while sees only that a rank is gone, and when it came back itself."""
    gone = dead(2, 0)
    verdict = only(job(victim(0, 6.0), victim(1, 6.0), gone, victim(3, 6.0), why="death"))

    assert ("rank-failed", [], [0, 1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 2 ended, and its exit code was not seen" in verdict.facts


def test_sigterm_by_torchrun_is_no_cause() -> None:
    """A SIGTERM beside another rank's bad end is torchrun's, also when its cause was seen a moment later."""
    verdict = only(job(dead(0, 0, code=0), rank(1), victim(2, 1.1), dead(3, 1.0, signal=15), why="death"))

    assert ("rank-exited-early", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
