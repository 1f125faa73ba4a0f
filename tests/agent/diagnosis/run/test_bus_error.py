"""The rule on SIGBUS: what /dev/shm held decides what is to be mended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.diagnosis.build import dead, job, only, raised, victim

MIB = 1 << 20


def test_a_full_shared_memory_is_to_be_enlarged() -> None:
    """What it held at most counts: with the process its pages have gone."""
    verdict = only(
        job(dead(0, 0, signal=7), victim(1), why="death", shm_size=64 * MIB, shm_used=0, shm_peak=64 * MIB)
    )

    assert ("rank-killed-bus", [0], [0], [1]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert "rank 0 was killed by SIGBUS: /dev/shm on node 0 was full (64 MiB of 64 MiB)" == verdict.sentence
    assert "node 0: /dev/shm holds 0 B of 64 MiB, and held 64 MiB at most" in verdict.facts
    assert "--shm-size" in verdict.hint
    assert "mapped file" not in verdict.hint


@pytest.mark.parametrize(("size", "enlarge"), [(64, True), (24 << 10, False)])
def test_a_shared_memory_with_room_leaves_the_mapped_file(size: int, enlarge: bool) -> None:
    """A small one may have been full between two looks; a large one may not."""
    evidence = job(dead(0, 0, signal=7), victim(1), why="death", shm_size=size * MIB, shm_used=12 * MIB)
    verdict = only(evidence)

    assert "was not seen full (12 MiB of " in verdict.sentence
    assert "mapped" in verdict.hint
    assert enlarge == ("--shm-size" in verdict.hint)


def test_an_unknown_shared_memory_is_not_judged() -> None:
    """A bundle of a node whose /dev/shm was not read: both causes stay possible."""
    verdict = only(job(dead(0, 0, signal=7), victim(1), why="death"))

    assert "rank 0 was killed by SIGBUS" == verdict.sentence
    assert "mapped" in verdict.hint
    assert "--shm-size" in verdict.hint


TEXT = (
    "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are"
)


def test_a_loader_worker_is_named_with_its_rank() -> None:
    """torch's message has the worker and the signal."""
    evidence = job(dead(0, 1, code=1, raised=[raised("RuntimeError", TEXT, 0.5)]), victim(1), why="death")
    verdict = only(evidence)

    assert ("rank-killed-bus", [0]) == (verdict.code, verdict.ranks)
    assert "rank 0's DataLoader worker 812 was killed by SIGBUS" == verdict.sentence


@pytest.mark.parametrize(("worker", "code"), [(812, "rank-killed-bus"), (811, "rank-failed")])
def test_the_signal_of_a_loader_worker_may_stand_in_the_cause(worker: int, code: str) -> None:
    """torch says that the worker is gone, from an exception with the signal; another's is not its."""
    gone = raised("RuntimeError", f"DataLoader worker (pid(s) {worker}) exited unexpectedly", 0.5)
    ended = dead(0, 1, code=1, raised=[replace(gone, cause=TEXT)])

    assert code == only(job(ended, victim(1), why="death")).code


@pytest.mark.parametrize("signal", [9, 11])
def test_another_signal_is_no_bus_error(signal: int) -> None:
    """A full /dev/shm beside it changes nothing."""
    evidence = job(dead(0, 0, signal=signal), victim(1), why="death", shm_size=64 * MIB, shm_used=64 * MIB)

    assert "rank-killed" == only(evidence).code
