"""The rules on ranks that wait for the lock on a file: who holds it is the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.build import in_collective, in_evaluate, in_init, job, only, rank, stack

from ddplaunch.agent.contract import Frame, Process, RankEvidence, Wait
from ddplaunch.agent.diagnosis.run.decide import judge

LOCKED = stack(Frame("load", "/job/data.py", 20))
FILE = "/data/cache.lock"


def blocked(number: int, holder: int, **more: Any) -> RankEvidence:
    """A rank that waits for the lock that this pid holds."""
    wait = Wait(["locks_lock_inode_wait"], FILE, "/data", "ext4", "/dev/vda", holder, "python prepare.py")
    process = Process(1000 + number, "S", wchan="locks_lock_inode_wait", waits_for=wait)
    return rank(number, LOCKED, **{"called": 16, **more}, process=process)


def test_a_rank_in_a_collective_holds_the_lock() -> None:
    """Neither can go on: both are named, and the hint is for the one that holds it."""
    verdict = only(job(rank(0), blocked(1, 1000), rank(2), rank(3)))

    assert ("rank-in-user-code", [0, 1], [2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 1 waits for the lock on /data/cache.lock in load (data.py:20); rank 0 holds it and waits for "
        "rank 1 in all_reduce 17 (train.py:92)"
    )
    assert "Let rank 0 release the lock before all_reduce 17 (train.py:92)" in verdict.hint


def test_a_program_holds_the_lock() -> None:
    """The rank that waits is named, with pid and command of the holder."""
    verdict = only(job(rank(0), blocked(1, 812)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "in load (data.py:20), which pid 812 (python prepare.py) holds" in verdict.sentence
    assert "lslocks -p 812" in verdict.hint


def test_a_holder_that_nobody_knows() -> None:
    """A lock of another node, or of an open file description."""
    assert "which another process holds" in only(job(rank(0), blocked(1, -1))).sentence


def test_a_rank_that_works_under_the_lock_is_the_cause() -> None:
    """Who waits for the lock is its victim, as are those who wait for both."""
    verdict = only(job(rank(0, in_evaluate(), 16), blocked(1, 1000), blocked(2, 1000), rank(3)))

    assert ("rank-in-user-code", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 0 is in evaluate (eval.py:140) and holds the lock on /data/cache.lock, for which ranks 1 and "
        "2 wait in load (data.py:20)"
    )


def test_a_lock_makes_a_rank_late() -> None:
    """The code is that of a rank which has not called init_process_group."""
    before: dict[str, Any] = {"groups": [], "initialized": False, "called": 0}
    verdict = only(job(rank(0, in_init(), **before), blocked(1, 812, **before)))

    assert ("rank-late-to-init", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 1 never reached init_process_group; rank 1 waits for the lock on"
    )


def test_a_pid_of_another_machine_is_another_process() -> None:
    """Two nodes may have a process of one number; in one machine it is the same."""
    far = job(rank(0), blocked(1, 1000), per_node=1)
    near = replace(far, evidence=[replace(node, machine="boot net") for node in far.evidence])

    assert [1] == only(far).ranks
    assert [0, 1] == only(near).ranks


def test_no_lock_and_no_straggler_are_left_to_others() -> None:
    """A rank in its own code; one that waits for itself; one in a collective, whatever its process says."""
    free = judge(job(rank(0), rank(1, in_evaluate(), 16)))
    itself = judge(job(rank(0), blocked(1, 1001)))
    waits = judge(job(rank(0), replace(blocked(1, 812), stacks=in_collective(), groups=rank(0).groups)))

    assert ["rank-in-user-code", "rank-in-user-code", "unknown"] == [
        found.code for (found,) in (free, itself, waits)
    ]
    assert all("lock" not in found.sentence for (found,) in (free, itself, waits))
