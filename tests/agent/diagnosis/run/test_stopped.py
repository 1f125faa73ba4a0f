"""A job that was stopped from outside, beside ranks that were killed one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import (
    NOW,
    PEER_GONE,
    TORCH,
    dead,
    job,
    only,
    raised,
    rank,
    victim,
)

from ddplaunch.agent.contract import (
    Exited,
    Frame,
    JobEvidence,
    Raised,
    RankEvidence,
    Signalled,
)

SAID = [
    "W1122 1 torch/distributed/elastic/agent/server/api.py: Received 15 death signal, shutting down workers",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 812 got signal: 15",
]


def launched(evidence: JobEvidence, node: int, end: Exited, said: list[str]) -> JobEvidence:
    """With the end of that node's launch command."""
    nodes = [
        replace(each, launch_exit=end, launch_output=said) if each.node == node else each
        for each in evidence.evidence
    ]
    return replace(evidence, evidence=nodes)


def test_torchrun_was_sent_sigterm() -> None:
    """It ends its ranks by the same signal, and no rank is at fault; nor are those of other nodes."""
    evidence = job(dead(0, 1, signal=15), dead(1, 1.1, signal=15), victim(2), victim(3), why="death")
    verdict = only(launched(evidence, 0, Exited(NOW - 9, 1), SAID))

    assert ("node-evicted", [0], [], [0, 1, 2, 3]) == (
        verdict.code,
        verdict.nodes,
        verdict.ranks,
        verdict.victims,
    )
    assert "the launch command of node 0 ended by SIGTERM, and the sender is unknown" == verdict.sentence


def test_a_launch_command_that_a_signal_ended() -> None:
    """SIGTERM asks for an end; SIGKILL and a crash are failures."""
    ranks = [dead(0, 1, signal=15), dead(1, 1.1, signal=15)]
    codes = [
        only(launched(job(*ranks, why="death"), 0, Exited(NOW - 9, signal=number), [])).code
        for number in (15, 9)
    ]

    assert ["node-evicted", "launch-failed"] == codes


def test_all_ranks_were_sent_the_signal() -> None:
    """A closed terminal takes them all; torchrun would have sent SIGTERM."""
    verdict = only(job(dead(0, 1, signal=1), dead(1, 1.2, signal=1), why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert "all ranks ended by SIGHUP, which came from outside: no rank had failed before" == verdict.sentence


def test_a_keyboard_interrupt_of_all_ranks() -> None:
    """Ctrl-C goes to the whole process group."""
    ends = [dead(n, 1, code=1, raised=[raised("KeyboardInterrupt", "", 1)]) for n in range(2)]

    assert "node-evicted" == only(job(*ends, why="death")).code


def test_one_rank_that_was_sent_the_signal() -> None:
    """The others are sent away because of it, or still stand: it is not accused, the sender is in doubt."""
    sent_away = dead(1, 1.5, signal=15, by_us=True)
    found = [
        only(job(dead(0, 1, signal=15), other, why="death"))
        for other in (sent_away, rank(1), dead(1, 1.1, signal=15))
    ]

    assert [("node-evicted", [], [0, 1])] * 3 == [(one.code, one.ranks, one.victims) for one in found]
    assert [0.5, 0.5, 0.9] == [one.confidence for one in found]
    assert (
        "rank 0 ended by SIGTERM, and the sender is unknown: no rank had failed before" == found[0].sentence
    )


def test_a_rank_that_missed_the_one_that_was_stopped() -> None:
    """It had raised for want of its peer when its launcher sent it away."""
    missed = dead(1, 1.5, signal=15, raised=[raised("RuntimeError", PEER_GONE, 1.3)])
    verdict = only(job(dead(0, 1, signal=15), missed, why="death"))

    assert ("node-evicted", []) == (verdict.code, verdict.ranks)
    assert verdict.sentence.startswith("rank 0 ended by SIGTERM")


@pytest.mark.parametrize("fault", [{"code": 3}, {"signal": 9}, {"signal": 11}])
def test_a_rank_that_failed_on_another_node_is_why_its_launcher_ends_the_rest(fault: dict[str, int]) -> None:
    """mpirun sends SIGTERM to the ranks of all nodes once one has ended badly."""
    verdict = only(
        job(dead(2, 1, **fault), dead(0, 1.2, signal=15), dead(1, 1.2, signal=15), rank(3), why="death")
    )

    assert [2] == verdict.ranks
    assert verdict.code in ("rank-failed", "rank-killed")


def test_a_launch_command_that_was_killed_takes_its_ranks_along() -> None:
    """SIGTERM is how they learn of it."""
    evidence = job(dead(0, 1.1, signal=15), dead(1, 1.2, signal=15), why="death")

    assert "launch-failed" == only(launched(evidence, 0, Exited(NOW - 9, signal=9), [])).code


def test_ranks_that_were_sent_away_after_a_failure() -> None:
    """A rank that had failed before is the cause, whatever ended the launch command later."""
    failed = dead(0, 1, code=1, raised=[raised("ValueError", "bad batch", 1)])
    evidence = job(failed, dead(1, 6, signal=15), why="death")

    assert "rank-failed" == only(launched(evidence, 0, Exited(NOW, 1), SAID)).code


def test_ranks_that_nobody_saw_are_not_judged() -> None:
    """Two of four ended by the signal: one of the others may have failed before."""
    evidence = replace(job(dead(0, 1, signal=1), dead(1, 1, signal=1), why="death"), world_size=4)
    verdict = only(evidence)

    assert ("node-evicted", [], 0.5) == (verdict.code, verdict.ranks, verdict.confidence)
    assert "no rank of those seen had failed before" in verdict.sentence


@pytest.mark.parametrize(
    ("number", "silent", "code"),
    [(15, [], "unknown"), (1, [], "node-evicted"), (15, [1], "node-evicted")],
    ids=["its launcher may have sent it", "no launcher sends it", "the other is on a node that is silent"],
)
def test_a_rank_that_was_never_seen_may_be_the_reason(number: int, silent: list[int], code: str) -> None:
    """It was killed as soon as it lived, say, and its launcher has then sent the others away."""
    nodes = 1 + len(silent)
    evidence = replace(
        job(dead(1, 1, signal=number), why="death"), nodes=nodes, world_size=2 * nodes, silent=silent
    )

    assert code == only(evidence).code


NO_WORKER = "DataLoader worker (pid(s) 812) exited unexpectedly"
TOLD = Frame("told", "/job/train.py", 14)


def without_worker(number: int, *signals: Signalled, message: str = NO_WORKER) -> RankEvidence:
    """A rank that has noticed the end of its worker, and what came to it before."""
    return dead(number, 6, code=1, raised=[raised("RuntimeError", message, 6)], signals=list(signals))


def test_a_signal_that_ranks_handle_and_that_ended_their_workers_came_from_outside() -> None:
    came = Signalled(15, NOW - 9.5, TOLD)
    verdict = only(job(without_worker(0, came), without_worker(1, came), why="death"))

    assert ("node-evicted", [], [0, 1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "SIGTERM came to all ranks, which handle it (told, train.py:14), and ended DataLoader workers of "
        "ranks 0 and 1" == verdict.sentence
    )
    assert "worker_init_fn" in verdict.hint


def test_a_broken_connection_to_a_worker_is_its_end_as_well() -> None:
    """torch hands over tensors by it. The look at rank 1 was before the signal."""
    recv = Frame("_recv", "/opt/env/lib/python3.11/multiprocessing/connection.py", 395)
    load = Frame("__next__", f"{TORCH}/utils/data/dataloader.py", 725)
    broke = Raised("ConnectionResetError", "[Errno 104] reset", NOW - 8, [recv, load], False, "hook")
    first = dead(0, 2.1, code=1, raised=[broke], signals=[Signalled(15, NOW - 9.5, TOLD)])
    verdict = only(job(first, without_worker(1), why="death"))
    without = only(job(replace(first, signals=[]), without_worker(1), why="death"))

    assert ("node-evicted", 0.5) == (verdict.code, verdict.confidence)
    assert verdict.sentence.endswith(
        "handles it (told, train.py:14), and ended DataLoader workers of ranks 0 and 1"
    )
    assert "rank-failed" == without.code


@pytest.mark.parametrize(
    "rank_of",
    [
        without_worker(0),
        without_worker(0, Signalled(15, NOW - 90, TOLD)),
        without_worker(0, Signalled(10, NOW - 9.5, TOLD)),
        without_worker(0, Signalled(15, NOW - 9.5, TOLD), message="cannot decode"),
    ],
    ids=["no signal", "long before", "one that asks for a checkpoint", "no worker has ended"],
)
def test_a_worker_that_ends_without_a_signal_before_is_a_failure(rank_of: RankEvidence) -> None:
    assert "rank-failed" == only(job(rank_of, victim(1), why="death")).code
