"""For whom a rank waits in its own code: a child, an answer, a reader, a lock of native code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import (
    C10D,
    TORCH,
    dead,
    in_collective,
    in_evaluate,
    in_loader,
    job,
    only,
    rank,
    stack,
)

from ddplaunch.agent.contract import Frame, Group, JobEvidence, Mutex, Process, Rendezvous, Stack, Tie, Wait
from ddplaunch.agent.diagnosis.run.decide import judge

SYNC = Frame("sync", "/job/save.py", 7)
SHELL = Process(812, "S", wchan="do_wait", tie=Tie("end", "", [813], ["rsync -a out nas:"]))
RSYNC = Process(813, "S", wchan="unix_stream_read")
PIPE = Tie("data", "a Unix socket", [812], ["python -m service"])


def waits(tie: Tie | None, *children: Process, **more: Any) -> JobEvidence:
    """Rank 1 waits in sync(), and rank 0 for rank 1."""
    process = Process(1001, "S", tie=tie, **more)
    stacks = [Stack("MainThread", True, stack(SYNC)[0].frames, tid=1001)]
    return job(rank(0), rank(1, stacks, 16, process=process, children=[*children]))


def test_a_child_for_whose_end_a_rank_waits_is_named_with_its_command() -> None:
    """And what that waits for itself."""
    verdict = only(waits(Tie("end", "", [812], ["sh -c rsync -a out nas:"]), SHELL, RSYNC))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith(
        "rank 1 has been in sync (save.py:7), waiting for the end of its child process 812 "
        "(sh -c rsync -a out nas:) for 11 s, the other waits"
    )
    assert "process 812: waits for the end of process 813 (rsync -a out nas:)" in verdict.facts
    assert "process 813: asleep (unix_stream_read)" in verdict.facts
    assert "/proc/812" in verdict.hint


def test_who_does_not_answer_is_named() -> None:
    verdict = only(waits(PIPE, Process(812, "S", name="service")))

    assert "waiting for data from its child process 812 (service) by a Unix socket for" in verdict.sentence


def test_another_rank_that_does_not_answer_is_named_as_a_rank() -> None:
    verdict = only(waits(Tie("data", "TCP", [1000], ["python train.py"], "127.0.0.1:4711")))

    assert "waiting for data from rank 0 by TCP for" in verdict.sentence


SERVES = Stack("server", False, [Frame("serve", "/job/lease.py", 31)])


def asks(*answering: Stack, called: int = 16) -> JobEvidence:
    """Rank 1 waits for an answer from rank 0, which is in collective 17 with rank 1."""
    tie = Tie("data", "TCP", [1000], ["python train.py"], "127.0.0.1:4711")
    stacks = [Stack("MainThread", True, stack(SYNC)[0].frames, tid=1001)]
    asking = rank(1, stacks, process=Process(1001, "S", tie=tie), groups=[Group("0", [0, 1], called, called)])
    open_group = [Group("0", [0, 1], 17, 16)]
    return job(rank(0, [*in_collective(), *answering], groups=open_group), asking)


def test_a_rank_that_asks_one_whose_collective_lacks_it_is_half_of_a_circle() -> None:
    """Either may have to change: no thread of rank 0 could answer."""
    verdict = only(asks())

    assert ("p2p-deadlock", [0, 1], 0.7) == (verdict.code, verdict.ranks, verdict.confidence)
    assert (
        "ranks wait in a circle: 1 → 0 → 1: rank 1 is in sync (save.py:7), waiting for data from rank 0 by "
        "TCP, and rank 0 is in all_reduce 17 (train.py:92), for which rank 1 is missing" == verdict.sentence
    )
    assert "answer in a thread of its own" in verdict.hint


@pytest.mark.parametrize("evidence", [asks(SERVES), asks(called=17)])
def test_a_rank_that_may_still_be_answered_is_in_no_circle(evidence: JobEvidence) -> None:
    """By a thread of the other; or the collective has what it needs of this rank."""
    assert "p2p-deadlock" not in [verdict.code for verdict in judge(evidence)]


def test_a_rank_that_asks_a_server_of_its_own_waits_for_itself() -> None:
    verdict = only(waits(Tie("data", "TCP", [1001], ["python train.py"], "127.0.0.1:4711")))

    assert "waiting for data from its own process by TCP for" in verdict.sentence


def test_an_answer_from_another_machine_has_its_address() -> None:
    verdict = only(waits(Tie("data", "TCP", [], [], "10.0.0.9:443")))

    assert "waiting for data from 10.0.0.9:443 by TCP for" in verdict.sentence


def test_a_child_that_waits_for_the_rank_to_read_its_output_never_ends() -> None:
    full = Process(812, "S", tie=Tie("room", "a pipe", [1001], ["python train.py"]))
    verdict = only(waits(Tie("end", "", [812], ["validate"]), full))

    assert "its child process 812 (validate), which waits for rank 1 to read its output" in verdict.sentence
    assert "communicate()" in verdict.hint


@pytest.mark.parametrize(("reader", "full"), [(1001, True), (4711, False)])
def test_a_child_that_cannot_write_its_errors_gives_no_answer(reader: int, full: bool) -> None:
    """Its stderr is a pipe that the rank does not read; another process might."""
    child = Process(812, "S", tie=Tie("room", "a pipe", [reader], ["python train.py"]))
    verdict = only(waits(Tie("data", "a pipe", [812], ["simulate"]), child))

    told = "waiting for data from its child process 812 (simulate), which waits for rank 1 to read its output"
    assert full == (told in verdict.sentence), verdict.sentence
    assert full == ("stderr" in verdict.hint)


def test_a_rank_and_its_child_that_both_write_wait_for_each_other() -> None:
    full = Process(812, "S", tie=Tie("room", "a pipe", [1001], ["python train.py"]))
    room = Tie("room", "a pipe", [812], ["normalize"])
    both, reads = only(waits(room, full)), only(waits(room, Process(812, "S")))

    said = "waiting for its child process 812 (normalize) to read what it writes to a pipe"
    assert f"{said}, which waits for rank 1 to read its output" in both.sentence
    assert "process 812: waits for a reader: rank 1 (a pipe)" in both.facts
    assert "Both pipes are full" in both.hint
    assert f"{said} for" in reads.sentence


@pytest.mark.parametrize(("starts", "told"), [("popen_fork.py", True), ("popen_spawn_posix.py", False)])
def test_a_forked_child_that_calls_a_collective_is_said_to_be_in_it(starts: str, told: bool) -> None:
    """One that was spawned may have made a group of its own."""
    inside = [
        Frame("all_reduce", C10D, 4181),
        Frame("compute", "/job/eval.py", 25),
        Frame("_launch", f"/opt/env/lib/python3.11/multiprocessing/{starts}", 71),
    ]
    child = Process(812, "S", name="ForkProcess-1", stacks=[Stack("MainThread", True, inside)])
    verdict = only(waits(Tie("data", "a pipe", [812], ["python train.py"]), child))

    said = "waiting for data from its child process 812 (ForkProcess-1) by a pipe"
    assert f"{said}{', which is in all_reduce (eval.py:25)' * told} for" in verdict.sentence
    assert told == ("its parent" in verdict.hint)


def test_a_child_whose_output_another_process_may_read_is_only_waited_for() -> None:
    full = Process(812, "S", tie=Tie("room", "a pipe", [1001, 900], ["python train.py", "tee"]))
    verdict = only(waits(Tie("end", "", [812], ["validate"]), full))

    assert "communicate()" not in verdict.hint
    assert verdict.sentence.startswith(
        "rank 1 has been in sync (save.py:7), waiting for the end of its child process 812 (validate) for"
    )


def test_the_thread_that_holds_a_lock_of_native_code_is_named() -> None:
    assert (
        "waiting in native code for a lock that its thread 4711 holds for"
        in only(waits(None, mutex=Mutex(4711, 1001))).sentence
    )


def test_who_waits_for_a_key_in_the_store_is_not_said_to_wait_for_the_stores_process() -> None:
    """Another rank may set the key: the rank, or the launcher, that has the store does not."""
    mine = Tie("data", "TCP", [1000], ["python train.py"], "127.0.0.1:29500")
    asks = waits(mine)
    made = Rendezvous("env", 0.0, "127.0.0.1", 29500, passed=True)
    ranks = asks.evidence[0].ranks
    of_store = job(ranks[0], replace(ranks[1], rendezvous=made))
    of_key = job(ranks[0], replace(ranks[1], keys=["ready/1"]))

    assert "waiting for data" in only(asks).sentence
    assert "waiting for data" not in only(of_store).sentence
    assert only(of_key).sentence.startswith(
        "rank 1 has been in sync (save.py:7), waiting for the key ready/1 in the store for 11 s"
    )


def test_who_waits_within_torch_is_not_said_to_wait_for_a_process() -> None:
    inside = [Frame("wait", f"{TORCH}/futures/__init__.py", 40), *stack(SYNC)[0].frames]
    process = Process(1001, "S", tie=PIPE)
    its = [Stack("MainThread", True, inside, tid=1001)]

    assert "waiting" not in only(job(rank(0), rank(1, its, 16, process=process))).sentence


@pytest.mark.parametrize(
    "evidence",
    [waits(None), job(rank(0), rank(1, in_evaluate(), 16, process=None))],
    ids=["no tie", "no process"],
)
def test_a_wait_that_is_not_known_is_not_named(evidence: JobEvidence) -> None:
    assert "waiting" not in only(evidence).sentence


def test_the_wait_of_another_thread_than_the_one_that_trains_is_not_taken_for_its_wait() -> None:
    """The main thread waits for a child; the rank stands in the thread that trains."""
    process = Process(1001, "S", tie=PIPE)
    trains = [Stack("trainer", True, stack(SYNC)[0].frames, tid=1017)]

    assert "waiting" not in only(job(rank(0), rank(1, trains, 16, process=process))).sentence


OPENS: dict[str, Any] = {
    "wchan": "wait_for_partner",
    "waits_for": Wait(["wait_for_partner"], "/job/queue", "/", "ext4"),
}


def test_a_named_pipe_that_nobody_opens_at_the_other_end_is_named() -> None:
    verdict = only(waits(None, **OPENS))

    assert "waiting until somebody opens the other end of the named pipe /job/queue for" in verdict.sentence
    assert "queue" not in only(waits(None, **{**OPENS, "wchan": "pipe_read"})).sentence


def test_a_workers_named_pipe_is_named() -> None:
    data = f"{TORCH}/utils/data/_utils"
    making = [Frame("read", "/job/data.py", 7), Frame("fetch", f"{data}/fetch.py", 54)]
    there = [Stack("MainThread", True, [*making, Frame("_worker_loop", f"{data}/worker.py", 358)])]
    worker = Process(812, "S", role="loader", stacks=there, **OPENS)
    verdict = only(job(rank(0), rank(1, in_loader(), 16, children=[worker])))

    assert (
        "its worker 812 is in read (data.py:7), waiting until somebody opens the other end"
        in verdict.sentence
    )


# --- a program that is over, and a Python that does not end

LIB = "/opt/env/lib/python3.11"
SHUTDOWN = Stack("MainThread", True, [Frame("_shutdown", f"{LIB}/threading.py", 1590)], tid=1001)
BEAT = Stack("heartbeat", False, [Frame("run", "/job/train.py", 9)], daemon=False)


def over(*stacks: Stack, **more: Any) -> JobEvidence:
    """Rank 0 has finished, and rank 1 stands so, with nothing of torch left."""
    ended = {"groups": [], "phase": "finalizing", "process": Process(1001, "S", **more)}
    return job(dead(0, -5.0, code=0), rank(1, [*stacks], 0, **ended))


def test_a_queue_that_nobody_reads_keeps_a_python_from_its_end() -> None:
    """Its feeder is a daemon, for which Python would not wait; multiprocessing does."""
    join = Frame("join", f"{LIB}/threading.py", 1119)
    ends = [
        Frame("_finalize_join", f"{LIB}/multiprocessing/queues.py", 199),
        Frame("_run_finalizers", f"{LIB}/multiprocessing/util.py", 300),
        Frame("_exit_function", f"{LIB}/multiprocessing/util.py", 334),
    ]
    feeder = Stack("QueueFeederThread", False, [Frame("_feed", f"{LIB}/multiprocessing/queues.py", 251)])
    verdict = only(over(Stack("MainThread", True, [join, *ends], tid=1001), feeder))
    other = only(over(Stack("MainThread", True, [join, ends[-1]], tid=1001), feeder))

    assert ("rank-in-user-code", [1]) == (verdict.code, verdict.ranks)
    assert "its Python waits until somebody reads what it has put into a multiprocessing.Queue" in (
        verdict.sentence
    )
    assert "cancel_join_thread()" in verdict.hint
    assert "Queue" not in other.sentence


def test_a_thread_that_keeps_a_python_from_its_end_is_named() -> None:
    verdict = only(over(SHUTDOWN, BEAT))

    assert ("rank-in-user-code", [1], []) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        'rank 1 has come to the end of its program, and its Python waits for its thread "heartbeat", in run '
        "(train.py:9); rank 0 has finished" == verdict.sentence
    )
    assert "daemon=True" in verdict.hint


def test_a_thread_that_waits_for_more_work_at_the_end_of_a_program_is_no_deadlock() -> None:
    """Python waits for the thread on a lock, and the thread on another one."""
    waits = [Frame("wait", f"{LIB}/threading.py", 327), Frame("get", f"{LIB}/queue.py", 171)]
    writer = Stack("writer", False, [*waits, Frame("drain", "/job/train.py", 9)], daemon=False, on_lock=True)
    ended = {"groups": [], "still_for": 60.0, "process": Process(1001, "S")}
    ends = rank(1, [replace(SHUTDOWN, on_lock=True), writer], 0, **ended)
    lines = {f"{LIB}/threading.py:1590": "lock.acquire()"}
    verdict = only(job(dead(0, -5.0, code=0), ends, lines=lines))

    assert "rank-in-user-code" == verdict.code
    assert 'its Python waits for its thread "writer", in drain (train.py:9)' in verdict.sentence


@pytest.mark.parametrize("stacks", [(), (SHUTDOWN,)], ids=["no stack can be had", "with a stack"])
def test_a_child_that_keeps_a_python_from_its_end_is_named(stacks: tuple[Stack, ...]) -> None:
    verdict = only(over(*stacks, tie=Tie("end", "", [812], ["python upload.py"])))

    assert (
        "its Python waits for the end of its child process 812 (python upload.py); rank 0" in verdict.sentence
    )


@pytest.mark.parametrize("daemon", [True, None])
def test_a_thread_for_which_python_need_not_wait_is_not_named(daemon: bool | None) -> None:
    assert "heartbeat" not in only(over(SHUTDOWN, replace(BEAT, daemon=daemon))).sentence
