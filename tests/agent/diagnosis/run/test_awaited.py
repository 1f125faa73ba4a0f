"""Ranks that wait for a key in torch's store, or for a file: who waits is not blamed beside who works."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agent.diagnosis.build import dead, in_evaluate, in_init, job, only, rank, stack

from ddplaunch.agent.contract import Frame, Group, JobEvidence, RankEvidence

LINES = {
    "/job/keys.py:7": 'store.wait(["ready"])',
    "/job/keys.py:9": 'value = self._store.get(f"shard-{n}")',
    "/job/keys.py:11": 'store.set("ready", "1")',
    "/job/keys.py:13": "while not os.path.exists(done): time.sleep(1)",
    "/job/keys.py:16": "for _ in range(600): if done.is_file(): break time.sleep(1)",
    "/job/keys.py:19": "while True: step() time.sleep(1)",
}


def at_store(number: int, line: int = 7, **more: Any) -> RankEvidence:
    """A rank at a line of keys.py. A call of the store has no frame: it is native code."""
    return rank(number, stack(Frame("fetch", "/job/keys.py", line)), **{"called": 16, **more})


def at_work(number: int, **more: Any) -> RankEvidence:
    """A rank in its own code."""
    return rank(number, in_evaluate(), **{"called": 16, **more})


def with_lines(*ranks: RankEvidence) -> JobEvidence:
    """A job that has sent the lines at which its ranks stand."""
    return job(*ranks, lines=LINES)


def test_who_waits_for_a_key_is_not_blamed_beside_who_works() -> None:
    """Two calls of two names, and a rank that waits for all of them."""
    verdict = only(with_lines(at_store(0), at_work(1), at_store(2, 9), rank(3)))

    assert ("rank-in-user-code", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 0 is in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence
    assert "rank 2 is in fetch (keys.py:9), waiting for a key in the store" in verdict.sentence


def test_where_nobody_is_in_a_collective_who_works_is_the_cause() -> None:
    """All others wait for a key that it sets."""
    verdict = only(with_lines(at_work(0), at_store(1), at_store(2), at_store(3)))

    assert ("rank-in-user-code", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_before_the_start_alike() -> None:
    """Ranks may use a store of their own before init_process_group."""
    before: dict[str, Any] = {"groups": [], "initialized": False, "called": 0}
    there = [rank(number, in_init(), **before) for number in (2, 3)]
    verdict = only(with_lines(at_store(0, **before), at_work(1, **before), *there))

    assert ("rank-late-to-init", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_key_that_nobody_else_can_set_is_the_cause() -> None:
    """All others wait in a collective for the rank that waits for the key."""
    verdict = only(with_lines(rank(0), at_store(1), rank(2)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 is in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence


def test_what_its_gpu_has_not_done_does_not_hide_that_it_waits_for_a_key() -> None:
    """Calls of NCCL return at once. The others have made all of theirs, and ended: they are not blamed.

    So it was on an H100, with NCCL 2.28.9 and torch 2.11.
    """
    pending = [Group("0", [0, 1, 2], 20, 6)]
    gone = [dead(number, 4, code=0) for number in (0, 2)]
    verdict = only(with_lines(gone[0], at_store(1, groups=pending, backend="nccl"), gone[1]))

    assert ("rank-in-user-code", [1], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 is in fetch (keys.py:7), waiting for a key in the store" in verdict.sentence


@pytest.mark.parametrize("line", [13, 16])
def test_who_looks_for_a_file_again_and_again_waits_for_it(line: int) -> None:
    """The one at work may write it."""
    verdict = only(with_lines(at_store(0, line), at_work(1), rank(2)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert f"rank 0 is in fetch (keys.py:{line}), waiting for a file" in verdict.sentence


@pytest.mark.parametrize("line", [11, 19])
def test_who_sets_a_key_or_sleeps_for_no_file_waits_for_nobody(line: int) -> None:
    """It is blamed like any rank at work."""
    assert [0, 1] == only(with_lines(at_store(0, line), at_work(1), rank(2))).ranks


def test_without_the_line_nothing_is_known_of_a_key() -> None:
    """Both are named."""
    assert [0, 1] == only(job(at_store(0), at_work(1), rank(2))).ranks
