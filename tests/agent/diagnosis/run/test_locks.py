"""The rules on a rank whose threads cannot go on: the GIL that native code holds, and locks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    TORCH,
    in_collective,
    in_evaluate,
    in_init,
    in_loader,
    job,
    only,
    raised,
    rank,
    stack,
)

from ddplaunch.agent.contract import (
    Frame,
    Group,
    JobEvidence,
    Mutex,
    Process,
    RankEvidence,
    Stack,
    Wait,
)
from ddplaunch.agent.diagnosis.run.decide import judge

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


@pytest.mark.parametrize(
    ("line", "native", "hint"),
    [
        ("if RULER.match(line):", "", "matches a regular expression"),
        ("return PATTERN.sub(' ', text)", "", "matches a regular expression"),
        ("dist.destroy_process_group()", "", "torch before 2.8 may block itself here"),
        ("device.read(buffer)", "", "Release it around the call"),
        ("if RULER.match(line):", "libre2.so:match", "Release it around the call"),
    ],
)
def test_a_hint_on_the_gil_knows_a_pattern_without_end_and_the_end_of_a_group(
    line: str, native: str, hint: str
) -> None:
    held = main_at(READ, on_lock=False, owns_gil=True, native=native)
    evidence = job(
        rank(0),
        rank(1, [held], 16, gil_wait=11.0, stack_source="py-spy", groups=[]),
        lines={f"{READ.file}:{READ.line}": line},
    )

    assert hint in only(evidence).hint


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
    assert "the same order" in verdict.hint


def test_threads_that_wait_at_one_line_while_main_joins_them_do_not_wait_for_each_other() -> None:
    """The main thread holds the lock, or one that has ended does: no order of locks is wrong."""
    verdict = only(hung(main_at(*JOIN, UPDATE), thread("push-1", WRITE), thread("push-3", WRITE)))

    assert verdict.sentence.startswith(
        'thread "push-1" and thread "push-3" of rank 1 wait in write (train.py:16) for a lock that no thread '
        "there will release; MainThread joins a thread in update (train.py:24)"
    )
    assert "on every path" in verdict.hint


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


@pytest.mark.parametrize(
    ("other", "told"),
    [(thread("pool_0", *RESULT, WRITE, IDLE), True), (thread("writer", *RESULT, WRITE), False)],
    ids=["in a pool", "in a thread of its own"],
)
def test_tasks_that_wait_for_tasks_of_their_own_pool_are_told_apart(other: Stack, told: bool) -> None:
    verdict = only(hung(main_at(*RESULT, UPDATE), other))

    assert told == ("of its own pool" in verdict.hint)


def around(number: int, in_main: bool, lock: Frame = UPDATE) -> RankEvidence:
    """A rank of which one thread is in a collective, and the other at this line."""
    op, line, called = ("all_reduce", 92, 3) if in_main else ("barrier", 60, 2)
    (inside,) = in_collective(op, line)
    if in_main:
        return rank(number, [inside, thread("saver", lock)], called)
    return rank(number, [main_at(lock), thread("saver", *inside.frames)], called)


def test_a_lock_that_some_ranks_hold_in_one_collective_and_others_in_another() -> None:
    """Which thread was first is chance, so nobody is more to blame than the others."""
    verdict = only(job(around(0, in_main=True), around(1, False), around(2, False), lines=LINES))

    assert ("lock-deadlock", [0, 1, 2], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        'rank 0 is in all_reduce (train.py:92) in MainThread, and thread "saver" waits for a lock in update '
        '(train.py:24); ranks 1 and 2 are in barrier (train.py:60) in thread "saver", and MainThread waits '
        "for a lock in update (train.py:24): each collective waits for the others" == verdict.sentence
    )


@pytest.mark.parametrize(
    "others",
    [
        [around(1, in_main=True)],
        [around(1, in_main=False, lock=READ)],
        [rank(1, in_collective("barrier", 60), 2)],
        [around(1, in_main=False), rank(2, in_evaluate(), 2)],
    ],
    ids=["the same way round", "no lock", "no second thread", "a rank elsewhere"],
)
def test_threads_at_locks_that_do_not_keep_each_other_out(others: list[RankEvidence]) -> None:
    found = judge(job(around(0, in_main=True), *others, lines=LINES))

    assert "lock-deadlock" not in [verdict.code for verdict in found]


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


DECODE = Frame("decode", "/job/train.py", 31)
HOLDER = Stack("warm-cache", False, [WRITE, *TOP], tid=4711)


def forked(*beside: Stack, on_lock: bool = True, **more: Any) -> JobEvidence:
    """Rank 1's DataLoader has two workers, of which one is in native code."""
    sharer = Frame("_serve", f"{LIB}/multiprocessing/resource_sharer.py", 138)
    stuck = Stack("MainThread", True, in_worker(DECODE), on_lock=on_lock)
    idle = Stack("MainThread", True, in_worker(READ)[2:], on_lock=True)
    children = [
        Process(811, "S", role="loader", stacks=[idle], unseen_threads=0),
        Process(
            812,
            "S",
            role="loader",
            stacks=[stuck, Stack("Thread-2", False, [sharer, *TOP]), *beside],
            **{"unseen_threads": 0, **more},
        ),
    ]
    return job(rank(0), rank(1, [*in_loader(), HOLDER], 16, children=children), lines=LINES)


def test_a_native_lock_is_named_with_the_thread_that_held_it_when_its_worker_was_forked() -> None:
    verdict = only(forked(mutex=Mutex(4711, 1001), unseen_threads=3))

    assert ("lock-deadlock", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 1's DataLoader worker 812 waits in decode (train.py:31) for a lock of native code that thread "
        '"warm-cache" of rank 1 held when it forked the process: the copy there has no thread'
    )
    assert "multiprocessing_context" in verdict.hint


def test_a_worker_whose_only_thread_waits_for_its_own_process_waits_for_ever() -> None:
    """Whatever lock that is: not every lock says who holds it."""
    verdict = only(forked())

    assert ("lock-deadlock", [1]) == (verdict.code, verdict.ranks)
    assert "for a lock that nobody can release: it has no other thread of the program" in verdict.sentence


def test_a_child_of_a_pool_is_looked_at_as_a_loaders_worker_is() -> None:
    """The rank waits for its result in multiprocessing."""
    mine = stack(WAIT, Frame("get", f"{LIB}/multiprocessing/pool.py", 768), Frame("tokenize", "/job/t.py", 9))
    there = [Stack("MainThread", True, [DECODE], on_lock=True)]
    child = Process(812, "S", role="other", stacks=there, unseen_threads=0)
    verdict = only(job(rank(0), rank(1, mine, 16, children=[child])))

    assert verdict.sentence.startswith("rank 1's child process 812 waits in decode (train.py:31) for a lock")


@pytest.mark.parametrize(
    "evidence",
    [
        forked(unseen_threads=1),
        forked(unseen_threads=-1),
        forked(on_lock=False),
        forked(Stack("decoder", False, [WRITE, *TOP]), unseen_threads=0),
        forked(unseen_threads=1, mutex=Mutex(812, 812)),
    ],
    ids=[
        "a native thread is beside it",
        "its threads were not counted",
        "a wait with a timeout, or for another process",
        "another thread of the program is beside it",
        "its own thread has the mutex",
    ],
)
def test_a_worker_that_another_thread_may_wake_up_is_in_no_deadlock(evidence: JobEvidence) -> None:
    """It stays where it is found: in its DataLoader."""
    assert "rank-in-dataloader" == code(evidence)


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


# --- The rules on ranks that wait for the lock on a file: who holds it is the cause.


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
    assert [False, True, False] == ["lock" in found.sentence for (found,) in (free, itself, waits)]


# --- locks that are tried for again and again

ACQUIRE = Frame("acquire", "/opt/env/lib/python3.11/site-packages/filelock/_api.py", 470)
POLLS = Frame("_poll_until_acquired", ACQUIRE.file, 1177)
BATON = Frame("wait", f"{TORCH}/utils/file_baton.py", 50)
BUILDS = Frame("builds", "/job/lock.py", 6)
COMPILES = Frame("compiles", "/job/lock.py", 4)


def tries(number: int, *frames: Frame, holder: int | None = None, **more: Any) -> RankEvidence:
    """A rank that tries for a lock. `holder`: the pid that has it; 0: none; None: its file is not known."""
    wait = (
        None if holder is None else Wait([], FILE, "/data", "ext4", "/dev/vda", holder, "python prepare.py")
    )
    process = Process(1000 + number, "S", wchan="hrtimer_nanosleep", wakeups=20.0, waits_for=wait)
    values = {"process": process, "called": 16, **more}
    return rank(number, stack(*(frames or (POLLS, ACQUIRE)), BUILDS), **values)


def compiles(number: int, **more: Any) -> RankEvidence:
    """A rank at work."""
    return rank(number, stack(COMPILES), **{"called": 16, **more})


@pytest.mark.parametrize("frames", [(POLLS, ACQUIRE), (ACQUIRE,), (BATON,)], ids=["filelock", "old", "baton"])
def test_who_tries_for_a_lock_is_not_blamed_beside_who_works(frames: tuple[Frame, ...]) -> None:
    """Whoever holds it: the ranks wait, and the sentence says for what."""
    verdict = only(job(tries(0, *frames), compiles(1), tries(2, *frames)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 has been in compiles (lock.py:4) for 11 s; "
        "ranks 0 and 2 are in builds (lock.py:6), waiting for the lock on a file" == verdict.sentence
    )
    assert any(fact.startswith("rank 0: ") and "builds (lock.py:6)" in fact for fact in verdict.facts)


def test_the_file_is_named_beside_who_works() -> None:
    """Also where its holder was not seen: it may be on another node."""
    verdict = only(job(tries(0, holder=0), compiles(1), rank(2), rank(3), per_node=1))

    assert ([1], [0, 2, 3]) == (verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith(
        "; rank 0 is in builds (lock.py:6), waiting for the lock on /data/cache.lock"
    )


def test_who_tries_for_a_lock_is_not_late_beside_who_works() -> None:
    """Before init_process_group alike."""
    before: dict[str, Any] = {"groups": [], "initialized": False, "called": 0}
    verdict = only(
        job(tries(0, **before), compiles(1, **before), tries(2, **before), rank(3, in_init(), **before))
    )

    assert ("rank-late-to-init", [1], [0, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.endswith(
        "; ranks 0 and 2 are in builds (lock.py:6), waiting for the lock on a file"
    )


def test_who_waits_in_the_kernel_for_an_unseen_holder_is_not_blamed_beside_who_works() -> None:
    """A lock of another node, or of an open file description."""
    verdict = only(job(blocked(0, -1), compiles(1), rank(2)))

    assert ([1], [0, 2]) == (verdict.ranks, verdict.victims)


def test_a_rank_that_was_seen_to_hold_the_tried_lock_is_the_cause() -> None:
    """As with a lock that the kernel waits for."""
    verdict = only(job(tries(0, holder=1001), compiles(1), tries(2, holder=1001)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 1 is in compiles (lock.py:4) and holds the lock on /data/cache.lock, for which ranks 0 and 2 "
        "wait in builds (lock.py:6)" == verdict.sentence
    )


def test_a_program_that_was_seen_to_hold_the_tried_lock_is_named() -> None:
    """A rank at work beside it is not said to hold it."""
    found = judge(job(tries(0, holder=812), compiles(1), rank(2)))

    assert [[0], [1]] == [verdict.ranks for verdict in found]
    assert "in builds (lock.py:6), which pid 812 (python prepare.py) holds" in found[0].sentence
    assert "lock" not in found[1].sentence.replace("lock.py", "")


@pytest.mark.parametrize(
    ("frames", "holder", "file", "hint"),
    [
        ((BATON,), 0, FILE, "`rm /data/cache.lock`"),
        ((BATON,), None, "a file", "remove the file `lock`"),
        ((POLLS, ACQUIRE), 0, FILE, "`lslocks`"),
    ],
    ids=["baton", "unknown file", "filelock"],
)
def test_all_try_for_a_lock_that_nobody_was_seen_to_hold(
    frames: tuple[Frame, ...], holder: int | None, file: str, hint: str
) -> None:
    """They stay the culprits. Only a baton can be left over: the kernel's locks end with their process."""
    verdict = only(job(tries(0, *frames, holder=holder), tries(1, *frames, holder=holder), rank(2), rank(3)))

    assert ("rank-in-user-code", [0, 1], [2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        f"ranks 0 and 1 wait for the lock on {file} in builds (lock.py:6); no holder was seen, the"
    )
    assert hint in verdict.hint


def test_unknown_locks_at_two_places_are_not_called_one() -> None:
    """Of two waits whose files are not known each has its own sentence."""
    elsewhere = replace(tries(1), stacks=stack(POLLS, ACQUIRE, Frame("load", "/job/data.py", 20)))
    found = judge(job(tries(0), elsewhere, rank(2)))

    assert [[0], [1]] == [verdict.ranks for verdict in found]
    assert "waiting for the lock on a file" in found[1].sentence


def test_a_try_that_raises_is_no_swallowed_exception() -> None:
    """A program may catch filelock's Timeout and try again."""
    caught = raised("filelock._error.Timeout", "The file lock could not be acquired", 5.0, handled=True)
    (verdict,) = judge(job(replace(tries(0), raised=[caught]), rank(1)))

    assert ("rank-in-user-code", True) == (verdict.code, "wait" in verdict.sentence)


def test_with_nccl_a_pending_collective_does_not_hide_who_tries_for_a_lock() -> None:
    """Its GPU waits for the peers, and the rank for the lock."""
    pending: dict[str, Any] = {"backend": "nccl", "groups": [Group("0", [], 17, 16)]}
    further = rank(1, called=18, backend="nccl")
    verdict = only(job(tries(0, BATON, **pending), further))

    assert ([0], True) == (verdict.ranks, "waits for the lock" in verdict.sentence)


STORAGE = Wait(["request_wait_answer"], "/nas/lock", "/nas", "fuse", "nas:/data")
HOOKED = Frame("on_acquired", "/job/lock.py", 9)
THREADING = Frame("wait", "/opt/env/lib/python3.11/threading.py", 327)


@pytest.mark.parametrize(
    "waiter",
    [
        tries(0, HOOKED, ACQUIRE),
        tries(0, THREADING, ACQUIRE),
        tries(0, Frame("acquire", "/job/filelocks.py", 3)),
        tries(0, Frame("release", ACQUIRE.file, 500)),
        tries(0, Frame("wait", "/job/file_baton.py", 3)),
        replace(tries(0), process=Process(1000, "S", waits_for=STORAGE)),
        replace(tries(0), stacks=[]),
    ],
    ids=[
        "the user's code, called by the library",
        "a thread's wait",
        "another library",
        "a release",
        "the user's own class",
        "storage",
        "no stack",
    ],
)
def test_what_is_no_try_for_a_lock(waiter: RankEvidence) -> None:
    """Of locks nothing is said then."""
    found = judge(job(waiter, compiles(1), rank(2)))

    assert all("the lock on" not in f"{verdict.sentence} {verdict.hint}" for verdict in found)
    assert 0 not in [rank for verdict in found for rank in verdict.victims]


def test_where_the_one_at_work_shows_no_stack_nobody_is_blamed() -> None:
    """The places of all are told."""
    hidden = rank(1, [], 16)
    verdict = only(job(tries(0), hidden))

    assert ("unknown", []) == (verdict.code, verdict.ranks)
    assert "rank 0 in builds (lock.py:6), waiting for the lock on a file" in verdict.sentence


def test_ranks_that_work_under_two_locks_are_blamed_and_none_that_waits() -> None:
    """Torch's compiler has a lock for each graph."""
    other = Wait([], "/data/other.lock", "/data", "ext4", "/dev/vda", 1003)
    second = replace(tries(2), process=Process(1002, "S", waits_for=other))
    found = judge(job(tries(0, holder=1001), compiles(1), second, compiles(3), per_node=4))

    assert [([1], [0, 2]), ([3], [])] == [(verdict.ranks, verdict.victims) for verdict in found]
    assert found[0].sentence.endswith(
        "for which rank 0 waits in builds (lock.py:6); "
        "rank 2 is in builds (lock.py:6), waiting for the lock on /data/other.lock"
    )
