"""The rules on a rank whose threads cannot go on: the GIL that native code holds, and locks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import TORCH, in_loader, job, only, rank, stack

from ddplaunch.agent.contract import Frame, Group, JobEvidence, Process, RankEvidence, Stack

LIB = "/opt/env/lib/python3.11"
TOP = [
    Frame("run", f"{LIB}/threading.py", 982),
    Frame("_bootstrap_inner", f"{LIB}/threading.py", 1045),
    Frame("_bootstrap", f"{LIB}/threading.py", 1002),
]
READ = Frame("read", "/job/train.py", 31)
UPDATE = Frame("update", "/job/train.py", 24)
WRITE = Frame("write", "/job/train.py", 16)
WAIT = Frame("wait", f"{LIB}/threading.py", 327)
GET = Frame("get", f"{LIB}/queue.py", 171)
JOIN = [
    Frame("_wait_for_tstate_lock", f"{LIB}/threading.py", 1139),
    Frame("join", f"{LIB}/threading.py", 1119),
]
RESULT = [WAIT, Frame("result", f"{LIB}/concurrent/futures/_base.py", 451)]
IDLE = Frame("_worker", f"{LIB}/concurrent/futures/thread.py", 81)
LINES = {
    "/job/train.py:24": "with file_lock:",
    "/job/train.py:16": "if not model_lock.acquire():",
    "/job/train.py:31": "device.read(buffer)",
}


def main_at(*frames: Frame, **more: Any) -> Stack:
    """The main thread, innermost frame first."""
    return replace(stack(*frames)[0], **{"on_lock": True, **more})


def thread(name: str, *frames: Frame, **more: Any) -> Stack:
    """Another thread of the program."""
    return Stack(name, False, [*frames, *TOP], **{"on_lock": True, **more})


def hung(*stacks: Stack, **more: Any) -> JobEvidence:
    """Rank 1 stands so, and rank 0 waits for it."""
    return job(rank(0), rank(1, [*stacks], 16, **more), lines=LINES)


def code(evidence: JobEvidence) -> str:
    """Of the one verdict."""
    return only(evidence).code


# --- the GIL


def gil(*stacks: Stack, **more: Any) -> JobEvidence:
    """Rank 1's hook asks for the GIL, by py-spy's stacks."""
    return hung(*stacks, **{"gil_wait": 11.0, "stack_source": "py-spy", "groups": [], **more})


def test_native_code_holds_the_gil() -> None:
    """The native function, the line and its text, and how to release the GIL."""
    held = main_at(READ, on_lock=False, owns_gil=True, native="libfoo.so:do_io")
    verdict = only(gil(held, thread("writer", WAIT, GET, WRITE)))

    assert ("gil-held", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 holds the GIL inside libfoo.so:do_io (train.py:31), "
        "the other waits in all_reduce 17 (train.py:92)" == verdict.sentence
    )
    assert "train.py:31: `device.read(buffer)`" in verdict.facts
    assert "the call (train.py:31)" in verdict.hint


def test_without_native_stacks_the_calling_line_is_named() -> None:
    """py-spy knows the thread; what native code it is in was not permitted to see."""
    held = thread("reader", READ, on_lock=False, owns_gil=True)
    verdict = only(gil(main_at(*JOIN), held))

    assert verdict.sentence.startswith(
        'rank 1 holds the GIL in native code called from read (train.py:31), in thread "reader", the other'
    )


def test_faulthandlers_one_thread_that_waits_for_no_lock_holds_it() -> None:
    """It does not say who holds the GIL; who waits for a lock does not."""
    other = thread("writer", WAIT, GET, WRITE, on_lock=False)
    verdict = only(gil(main_at(READ, on_lock=False), other, stack_source="faulthandler"))

    assert ("gil-held", True) == (verdict.code, "native code called from read" in verdict.sentence)


@pytest.mark.parametrize(
    "evidence",
    [
        gil(main_at(READ, owns_gil=True), gil_wait=0.0),
        gil(main_at(READ, owns_gil=True), gil_wait=5.0),
        gil(main_at(READ)),
        gil(main_at(READ), thread("reader", READ), stack_source="faulthandler"),
    ],
    ids=["its hook answers, or a busy machine delays it", "not for long", "by no thread", "by one of two"],
)
def test_a_gil_of_which_nothing_is_proven(evidence: JobEvidence) -> None:
    """The rank is named all the same, as busy in its own code."""
    assert "rank-in-user-code" == code(evidence)


def test_a_stopped_process_does_not_hold_the_gil() -> None:
    """It cannot release it either."""
    stopped = gil(main_at(READ, owns_gil=True), process=Process(1001, "T"))

    assert "rank-stopped" == code(stopped)


# --- locks


def test_two_threads_take_two_locks_in_opposite_order() -> None:
    """Each with its statement; a helper of torch is no part of it."""
    pinning = Frame("do_one_step", f"{TORCH}/utils/data/_utils/pin_memory.py", 39)
    evidence = hung(
        main_at(UPDATE), thread("writer", WRITE), thread("", pinning, on_lock=False), thread("pool", IDLE)
    )
    verdict = only(evidence)

    assert ("lock-deadlock", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1's threads wait for each other: MainThread waits for a lock in update (train.py:24), "
        'thread "writer" waits for a lock in write (train.py:16), '
        "the other waits in all_reduce 17 (train.py:92)" == verdict.sentence
    )
    assert "train.py:24: `with file_lock:`" in verdict.facts
    assert "one order" in verdict.hint


def test_a_lock_that_no_thread_is_left_to_release() -> None:
    """Taken twice by the same thread, or left behind by one that has ended."""
    verdict = only(hung(main_at(UPDATE)))

    assert verdict.sentence.startswith(
        "rank 1 waits in update (train.py:24) for a lock that none of its threads will release"
    )
    assert "RLock" in verdict.hint


@pytest.mark.parametrize(
    ("main", "other"),
    [
        (main_at(*JOIN, UPDATE), thread("writer", WAIT, GET, WRITE)),
        (main_at(*RESULT, UPDATE), thread("pool", *RESULT, WRITE, IDLE)),
        (main_at(WAIT, GET, UPDATE), thread("writer", WRITE)),
    ],
    ids=["join", "nested futures", "a queue while it holds a lock"],
)
def test_other_waits_for_each_other(main: Stack, other: Stack) -> None:
    """The end of a thread, a result, an item."""
    assert "lock-deadlock" == code(hung(main, other))


def worker(*stacks: Stack, role: str = "loader") -> RankEvidence:
    """A rank that waits for its DataLoader, whose worker stands so."""
    return rank(1, in_loader(), 16, children=[Process(812, "S", role=role, stacks=[*stacks])])


def in_worker(*frames: Frame) -> list[Frame]:
    """Frames of a worker's main thread that makes a batch."""
    data = f"{TORCH}/utils/data/_utils"
    return [*frames, Frame("fetch", f"{data}/fetch.py", 54), Frame("_worker_loop", f"{data}/worker.py", 358)]


def test_a_loaders_worker_inherits_a_held_lock() -> None:
    """Its feeder, which is idle, is not spoken of."""
    feeder = thread("QueueFeederThread", WAIT, Frame("_feed", f"{LIB}/multiprocessing/queues.py", 231))
    stuck = worker(Stack("MainThread", True, in_worker(UPDATE), on_lock=True), feeder)
    verdict = only(job(rank(0), stuck, lines=LINES))

    assert ("lock-deadlock", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 1's DataLoader worker 812 waits in update (train.py:24) for a lock that none of its threads"
    )
    assert "multiprocessing_context" in verdict.hint


@pytest.mark.parametrize(
    "evidence",
    [
        hung(main_at(UPDATE, on_lock=False), thread("writer", WRITE)),
        hung(main_at(UPDATE), thread("writer", WRITE, on_lock=False)),
        hung(main_at(WAIT, GET, UPDATE)),
        hung(main_at(WAIT, GET, UPDATE), thread("pool", IDLE)),
        hung(main_at(WAIT, GET, UPDATE), thread("writer", WAIT, GET, WRITE)),
        hung(main_at(*RESULT, UPDATE), thread("pool", IDLE)),
        hung(main_at(READ), thread("writer", WRITE)),
        hung(main_at(UPDATE), thread("writer", READ)),
        hung(main_at(UPDATE), thread("writer", WRITE), still_for=1.0),
        hung(main_at(UPDATE), thread("writer", WRITE), stack_moves=True),
        hung(main_at(*JOIN, UPDATE), groups=[Group("0", [], 16, 16), Group("1", [1], 3, 2)]),
        job(rank(0), worker(Stack("MainThread", True, in_worker(UPDATE))), lines=LINES),
    ],
    ids=[
        "a wait with a timeout, or for another process",
        "another thread may go on",
        "an item that a native callback may put",
        "an item, beside an idle pool",
        "two items",
        "a result that a native callback may set",
        "native code of the main thread",
        "native code of another thread",
        "it used CPU",
        "its stack moved",
        "a callback of a collective is due",
        "a worker that waits for another process",
    ],
)
def test_waits_that_prove_no_deadlock(evidence: JobEvidence) -> None:
    """The rank is named with a more general cause."""
    assert "lock-deadlock" != code(evidence)
