"""The rules on ranks that ended: whose end came first, and whose only followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    NOW,
    PEER_GONE,
    dead,
    in_evaluate,
    in_init,
    job,
    only,
    raised,
    rank,
    victim,
)

from ddplaunch.agent.contract import Exited, Group, Lost, NodeEvidence
from ddplaunch.agent.diagnosis.run.causes import is_consequence

GONE = Lost(1, NOW - 10, closed=True, completed=34)


def test_rank_failed_by_its_own_exception() -> None:
    """The rank whose exception is its own is at fault, though the others' exits were seen earlier."""
    verdict = only(
        job(
            victim(0, 0.6),
            victim(1),
            victim(2),
            dead(3, 0.9, code=1, raised=[raised("ValueError", "sample 5 has 7 labels", 0.5)]),
            why="death",
        )
    )

    assert ("rank-failed", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 3 raised ValueError: sample 5 has 7 labels (train.py:61)" == verdict.sentence
    assert (
        f"rank 1 ended 0.5 s later, as a victim: RuntimeError: {PEER_GONE.partition('] ')[2]}"
        in verdict.facts
    )


def test_the_same_failure_of_all_ranks_has_no_victim() -> None:
    """When every rank fails by itself in the same way, all are named."""
    ranks = [
        dead(n, 0.1 * n, code=1, raised=[raised("FileNotFoundError", f"no shard-{n}.bin", 0.1 * n)])
        for n in range(4)
    ]
    verdict = only(job(*ranks, why="death"))

    assert ("rank-failed", [0, 1, 2, 3], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("all ranks raised FileNotFoundError: no shard-0.bin")


def test_a_later_failure_of_another_kind_is_a_victim() -> None:
    """Of two different failures the first is the cause."""
    verdict = only(
        job(
            dead(0, 1, code=1, raised=[raised("KeyError", "'loss'", 3)]),
            dead(1, 2, code=1, raised=[raised("ValueError", "bad", 2)]),
            why="death",
        )
    )

    assert ("rank-failed", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_exit_code_without_an_exception() -> None:
    """sys.exit(3) leaves no exception; its last line is told instead."""
    verdict = only(job(dead(0, 0, code=3, last_output="no licence left"), victim(1), why="death"))

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 ended with exit code 3 and no exception (sys.exit or os._exit); its last line: no licence "
        "left" == verdict.sentence
    )


def test_failure_before_init_while_others_wait_there() -> None:
    """Ranks that live and wait for the dead one are its victims, and those torchrun sent away as well."""
    verdict = only(
        job(
            dead(0, 1, signal=15, by_us=True),
            dead(1, 0.5, code=1, raised=[raised("JSONDecodeError", "line 1", 0.4)]),
            rank(2, in_init(), groups=[], initialized=False),
            rank(3, in_init(), groups=[], initialized=False),
            why="death",
        )
    )

    assert ("rank-failed", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_killed() -> None:
    """A SIGKILL that no memory counter explains came from somebody."""
    verdict = only(job(victim(0), victim(1), dead(2, 0, signal=9), victim(3), why="death"))

    assert ("rank-killed", [2], [1], [0, 1, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 2 was killed by SIGKILL" == verdict.sentence
    assert "node 1: the cgroup counted no kill for memory, and the kernel logged none" in verdict.facts


@pytest.mark.parametrize(("after", "culprit"), [(0.3, 1), (0.8, 0)])
def test_sigkill_may_be_the_answer_to_another_end(after: float, culprit: int) -> None:
    """MPI's launcher ends all ranks over the one that crashed, and clocks of two nodes differ a little."""
    verdict = only(job(dead(0, 0, signal=9), dead(1, after, signal=11), why="death", per_node=1))

    assert ("rank-killed", [culprit]) == (verdict.code, verdict.ranks)


def test_rank_crashed_in_native_code() -> None:
    """SIGSEGV is the rank's own doing, and the hint says how to see where."""
    verdict = only(job(victim(0), dead(1, 0, signal=11), why="death"))

    assert ("rank-killed", [1]) == (verdict.code, verdict.ranks)
    assert "PYTHONFAULTHANDLER" in verdict.hint


def test_a_thread_that_outlived_its_program_is_told_how_to_end() -> None:
    """C++'s last words of a program that ended while threads of torch ran: its build is not to blame."""
    words = "terminate called without an active exception"
    verdict = only(job(victim(0), dead(1, 0, signal=6, last_output=words), why="death"))

    assert ("rank-killed", [1]) == (verdict.code, verdict.ranks)
    assert "destroy_process_group()" in verdict.hint


KILLED = "Memory cgroup out of memory: Killed process 1001 (python) total-vm:4101096kB, anon-rss:1048576kB, "


@pytest.mark.parametrize(
    ("told", "held"), [({"oom_kills": 1}, ""), ({"kernel": [KILLED, "oom-kill:…"]}, ", it held 1.0 GiB")]
)
def test_rank_killed_for_memory(told: dict[str, Any], held: str) -> None:
    """The cgroup's count or the kernel's line makes a SIGKILL a kill for memory."""
    verdict = only(job(victim(0), dead(1, 0, signal=9), why="death", memory_limit=16 << 30, **told))

    assert ("rank-killed-memory", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 1 was killed for memory on node 0: limit 16.0 GiB{held}" == verdict.sentence


def test_loader_worker_killed_for_memory() -> None:
    """The worker's death reaches the rank as an exception; the cause is told, not the exception."""
    text = "DataLoader worker (pid 812) is killed by signal: Killed. "
    evidence = job(
        dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death", oom_kills=1
    )
    verdict = only(evidence)

    assert ("rank-killed-memory", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 0's DataLoader worker 812 was killed for memory on node 0" == verdict.sentence


def test_a_loader_worker_that_is_gone_was_not_killed_for_that() -> None:
    """torch says so of one that has called exit, too: nothing speaks of a signal."""
    text = "DataLoader worker (pid(s) 812) exited unexpectedly"
    evidence = job(dead(0, 1, code=1, raised=[raised("RuntimeError", text, 0.5)]), victim(1), why="death")
    verdict = only(evidence)

    assert ("rank-failed", [0], [1]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_exited_early_and_the_others_lost_it() -> None:
    """Exit 0 is no fault by itself; it is when the others then fail for want of that rank."""
    verdict = only(job(victim(0), dead(1, 0, code=0), victim(2), victim(3), why="death"))

    assert ("rank-exited-early", [1], [0], [0, 2, 3]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 needed it" == verdict.sentence


def test_rank_exited_early_and_the_others_wait() -> None:
    """The same while the others still wait, as with NCCL."""
    verdict = only(job(rank(0), dead(1, 0, code=0), rank(2), rank(3)))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 finished normally (exit code 0) while ranks 0, 2 and 3 still wait in all_reduce 17 "
        "(train.py:92)" == verdict.sentence
    )


def test_rank_exited_early_and_the_others_are_at_different_stages_of_failing() -> None:
    """One has raised and is not dead yet, one was sent away and buried by its launcher: both are victims."""
    failing = rank(0, [], raised=[raised("RuntimeError", PEER_GONE, 0.9)], groups=[])
    verdict = only(job(failing, dead(1, 0, code=0), victim(2), dead(3, 1.2, by_us=True), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_rank_exited_early_and_one_was_seen_a_moment_too_early() -> None:
    """It still stood in the last collective of the rank that left; the others were further."""
    left = dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])
    further = replace(victim(0), groups=[Group("0", [], 17, 16)])
    verdict = only(job(further, left, rank(2, called=16), rank(3), why="death"))

    assert ("rank-exited-early", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_who_has_called_all_collectives_has_not_left_early() -> None:
    """A rank that is done is not missing where it was."""
    verdict = only(job(rank(0, called=16), dead(1, 0, code=0, groups=[Group("0", [], 16, 16)])))

    assert "unknown" == verdict.code


def test_the_last_rank_may_take_its_time() -> None:
    """Ranks that are done do not make the one that still saves its model a victim."""
    ranks = [dead(n, 0, code=0) for n in (1, 2, 3)]
    verdict = only(job(rank(0, in_evaluate()), *ranks))

    assert ("rank-in-user-code", [0], []) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_node_that_went_away_is_named_instead_of_its_victims() -> None:
    """When the others lost a peer and one node does not answer any more, that node is told."""
    evidence = replace(job(victim(0), victim(1), why="death"), nodes=2, world_size=4, silent=[1], lost=[GONE])
    verdict = only(evidence)

    assert ("network-lost", [1], [0, 1]) == (verdict.code, verdict.nodes, verdict.victims)
    assert verdict.sentence.startswith("node 1 went away: its agent ended without a word at ")


def test_a_node_that_went_away_is_named_before_the_rest_has_noticed() -> None:
    """Ranks that still compute, or wait for those that are gone, are not taken for the cause."""
    evidence = replace(
        job(rank(0, in_evaluate(), called=16), rank(1), why="death"), nodes=2, silent=[1], lost=[GONE]
    )
    verdict = only(evidence)

    assert ("network-lost", [1], [], [0, 1]) == (verdict.code, verdict.nodes, verdict.ranks, verdict.victims)


def test_a_node_that_fell_silent_is_no_hang_of_those_who_wait() -> None:
    """Not even its kernel answers: the node is told by its name, with what its ranks had done."""
    waits = job(rank(0), rank(1), why="still")
    gone = replace(GONE, closed=False)
    verdict = only(replace(waits, nodes=2, silent=[1], lost=[gone], names=["n1", "n2"]))

    assert ("network-lost", [1], [0, 1]) == (verdict.code, verdict.nodes, verdict.victims)
    assert verdict.sentence.startswith("node 1 (n2) stopped answering at ")
    assert (
        "node 1 (n2) was last heard 10 s ago, 34 collectives done by its ranks together; "
        "not even its kernel confirms what is sent to it" == verdict.facts[0]
    )


def test_a_rank_that_failed_before_a_node_went_away_is_the_cause() -> None:
    """A node that goes down later, say because its scheduler ends the job, explains nothing."""
    failed = dead(0, 1, code=1, raised=[raised("ValueError", "bad batch", 1)])
    evidence = job(failed, rank(1), why="death")

    assert "rank-failed" == only(replace(evidence, nodes=2, silent=[1], lost=[replace(GONE, at=NOW)])).code
    assert "network-lost" == only(replace(evidence, nodes=2, silent=[1], lost=[GONE])).code


def test_launch_command_that_fails_before_its_workers() -> None:
    """A launch command that ends badly without having started a rank is told with its own words."""
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 2))
    node = replace(
        node, launch_output=["usage: torchrun [-h]", "torchrun: error: unrecognized arguments: --nprocs"]
    )
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    assert ("launch-failed", [0], []) == (verdict.code, verdict.nodes, verdict.ranks)
    assert (
        "node 0's launch command ended with exit code 2 before it started a worker: "
        "torchrun: error: unrecognized arguments: --nprocs"
    ) == verdict.sentence


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("RuntimeError", PEER_GONE, True),
        (
            "torch.distributed.DistBackendError",
            "NCCL error: remote process exited or there was a network error",
            True,
        ),
        (
            "torch.distributed.DistStoreError",
            "wait timeout after 8000ms, keys: /default_pg/0//cpu//0/2",
            True,
        ),
        ("torch.distributed.elastic.multiprocessing.api.SignalException", "Process 1 got signal: 15", True),
        ("KeyboardInterrupt", "", True),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", False),
        ("RuntimeError", "CUDA out of memory", False),
        ("ValueError", "Connection closed by peer", False),
    ],
)
def test_consequences(kind: str, message: str, expected: bool) -> None:
    """Torch's own network errors are consequences; a user's connection that broke is a cause."""
    assert expected == is_consequence(raised(kind, message, 0))
