"""How far a rank's collectives have come, once a second, by what its hook answers."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gate.jobs import wait_for

from ddplaunch.agent.contract import Frame, Phase
from ddplaunch.agent.supervisor import sampling
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_progress import Progress, Sample
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler, count, family
from ddplaunch.agent.system import proc

FRAMES = [Frame("evaluate", "/src/train.py", 12)]


def answer(called: int, done: int, *, backend: str = "gloo", retired: bool | None = None) -> dict[str, Any]:
    """A hook's; with the entry of the last collective where `retired` says whether that is done."""
    status = {"last_enqueued_collective": str(called), "last_completed_collective": str(done)}
    entry = {"collective_seq_id": called, "pg_id": 0, "retired": retired}
    entries = {} if retired is None else {"entries": [entry]}
    return {"recorders": {backend: {"pg_status": {"0": status}, **entries}}}


def rank() -> Rank:
    """Any process will do."""
    return Rank(0, 0, os.getpid())


def _count(trainer: Rank, told: dict[str, Any], stack: list[Frame] = FRAMES) -> tuple[int, int] | None:
    """What the supervisor takes from a look each second; a rank stands in code of its user by default."""
    counted, is_doubtful = count(trainer, told)
    look = Sample(time.monotonic(), {}, counted=counted, is_doubtful=is_doubtful, frames=stack)
    trainer.progress.take(look)
    return counted


def test_a_collective_that_may_be_done_is_asked_about_once() -> None:
    trainer = rank()
    assert (17, 16) == _count(trainer, answer(17, 16))
    assert [b"count", b"dump"] == [trainer.question(suspicious, True) for suspicious in (False, True)]

    assert (17, 17) == _count(trainer, answer(17, 16, retired=True))
    assert (b"look", (17, 17)) == (trainer.question(True), _count(trainer, answer(17, 16)))


def test_a_dump_with_entries_is_no_progress() -> None:
    """Rank 0 sent and received in monitored_barrier, and torch 2.15's brief dump counts that as well.

    Else each collection of evidence would look like progress, and the hang would never end the job.
    """
    trainer = rank()
    full = answer(21, 16, retired=False)
    full["recorders"]["gloo"]["entries"] = [
        {
            "profiling_name": "gloo:all_gather",
            "pg_id": 0,
            "collective_seq_id": seq,
            "op_id": op,
            "retired": done,
        }
        for seq, op, done in ((14, 16, True), (17, 21, False))
    ]

    assert [(21, 16)] * 3 == [_count(trainer, told) for told in (answer(21, 16), full, answer(21, 16))]


def test_a_collective_that_is_open_stays_open() -> None:
    trainer = rank()
    _count(trainer, answer(17, 16, retired=False))
    assert (b"look", (17, 16)) == (trainer.question(True), trainer.counted)

    _count(trainer, answer(18, 17))
    assert b"dump" == trainer.question(True)


def test_what_is_done_is_never_less_than_it_was() -> None:
    """A thread of Gloo's that is overtaken writes its own number over that of a later collective."""
    trainer = rank()
    _count(trainer, answer(17, 17))

    assert [(17, 17), (19, 17)] == [_count(trainer, answer(17, 15)), _count(trainer, answer(19, 15))]


def test_a_rank_that_stands_in_a_collective_is_asked_what_it_has_done() -> None:
    """Its stack says that it waits, and not how far behind Gloo's counter is."""
    trainer = rank()
    stack = [Frame("all_reduce", "/site/torch/distributed/distributed_c10d.py", 2810), *FRAMES]
    _count(trainer, answer(17, 13), stack)

    assert b"dump" == trainer.question(True)


def test_nccl_counts_by_one_thread() -> None:
    """Nothing is to be found out there, and a large recorder takes its time."""
    trainer = rank()
    _count(trainer, answer(17, 16, backend="nccl"))

    assert b"look" == trainer.question(True)


def test_a_new_group_counts_from_its_own_beginning() -> None:
    trainer = rank()
    _count(trainer, answer(17, 17))

    assert (2, 1) == _count(trainer, answer(2, 1))


def test_a_compiler_far_below_a_rank_is_of_its_family() -> None:
    """ninja, a shell, nvcc, another shell: what they start is what the rank waits for, and it is at work."""
    deep = "sleep 600; true"  # a shell with more to do stays between
    for _ in range(4):
        deep = f"sh -c {shlex.quote(deep)}; true"
    with subprocess.Popen(["sh", "-c", deep], start_new_session=True) as rank:
        try:
            wait_for(lambda: any(proc.command_line(pid).startswith("sleep") for pid in family(rank.pid)))
        finally:
            os.killpg(rank.pid, signal.SIGKILL)


@pytest.mark.parametrize(("end", "expected"), [("kill -9 $$", (9, 0)), ("exit 3", (0, 3))])
def test_how_a_dead_child_has_ended(end: str, expected: tuple[int, int]) -> None:
    """As long as its parent has not waited for it; of one that lives there is no end."""
    with subprocess.Popen(["sh", "-c", f"read line; {end}"], stdin=subprocess.PIPE) as child:
        alive = Sampler().process(child.pid)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        dead = Sampler().process(child.pid)

    assert alive is not None
    assert dead is not None
    assert ((0, 0), expected) == ((alive.exit_signal, alive.exit_code), (dead.exit_signal, dead.exit_code))


def test_a_rank_whose_cpu_another_process_has_is_told_with_that_process() -> None:
    busy = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nwhile True: pass"
    words = [sys.executable, "-S", "-c"]
    late_words = [*words, f"import os; os.nice(19); {busy}"]
    with subprocess.Popen(late_words) as late, subprocess.Popen([*words, busy]) as other:
        starved, sampler = Rank(0, 0, late.pid), Sampler()
        starved.progress = Progress(time.monotonic() - 60.0)
        try:
            wait_for(lambda: _delayed(sampler, starved) >= 0.5 and _names(sampler, starved, other.pid))
            found = sampler.process(late.pid)
        finally:
            starved.close()
            other.kill()
            late.kill()

    assert found is not None
    assert found.ran < found.delayed <= 1.0


_BUSY_THREAD = """
import threading, time
def burn():
    print(threading.get_native_id(), flush=True)
    while True: pass
threading.Thread(target=burn).start()
"""


def test_the_thread_that_answers_us_uses_no_cpu_of_the_rank() -> None:
    """It works because we have asked, and a rank that only answers does not move."""
    words = [sys.executable, "-S", "-c", _BUSY_THREAD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process, socket.socket() as unused:
        trainer, hook = Rank(0, 0, process.pid), Line(unused, process.pid)
        try:
            assert process.stdout is not None
            thread = int(process.stdout.readline())
            wait_for(lambda: proc.thread_cpu(process.pid, thread) >= 0.5)
            of_all = Sampler().sample(trainer, {}).used[process.pid].cpu
            hook.thread, trainer.line, trainer.initialized = thread, hook, True
            of_rank = Sampler().sample(trainer, {}).used[process.pid].cpu
        finally:
            trainer.close()
            process.kill()

    assert of_all >= 0.5
    assert of_rank <= 0.2
    assert proc.thread_cpu(process.pid, thread) == 0.0


def _delayed(sampler: Sampler, rank: Rank) -> float:
    sampler.look_at_queues([rank])
    found = sampler.process(rank.pid)
    assert found is not None
    return found.delayed


def _names(sampler: Sampler, rank: Rank, pid: int) -> bool:
    return pid in [each.pid for each in sampler.busiest({rank.pid})]


def stand(
    place: list[Any] | None, called: int, done: int, *, is_doubtful: bool = False, **more: Any
) -> tuple[str, Frame | None] | None:
    """Return where a rank stands by such an answer to `count`."""
    reply = {**answer(called, done, **more), "initialized": True, "place": place}
    return sampling._stand(reply, None, (called, done), is_doubtful)


def test_where_a_rank_stands_is_known_each_second() -> None:
    place = ["", *(FRAMES[0].name, FRAMES[0].file, FRAMES[0].line)]

    assert ("", FRAMES[0]) == stand(place, 17, 17)
    assert ("collective", FRAMES[0]) == stand(place, 17, 16)
    assert ("", FRAMES[0]) == stand(place, 17, 16, backend="nccl")
    assert ("loader", FRAMES[0]) == stand(["loader", *place[1:]], 17, 16)


def test_ddp_waits_in_torchs_engine() -> None:
    """A thread that sleeps there waits for what Gloo has not done, although its counter may lag."""
    place = ["engine", *(FRAMES[0].name, FRAMES[0].file, FRAMES[0].line)]

    assert [("collective", FRAMES[0]), ("", FRAMES[0])] == [
        stand(place, 17, done, is_doubtful=True) for done in (16, 17)
    ]
    assert ("", FRAMES[0]) == stand(place, 17, 16, backend="nccl")
    assert ("", None) == stand(["", "", "", 0], 17, 17)
    assert stand(None, 17, 17) is None


_TALKS = """
import os, socket, sys, threading, time
size, pause = int(sys.argv[1]), float(sys.argv[2])
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
peer, _ = server.accept()
def answers():
    while True:
        got = peer.recv(1 << 20)
        peer.sendall(got)
threading.Thread(target=answers, daemon=True).start()
while True:
    client.sendall(bytes(size))
    left = size
    while left:
        left -= len(client.recv(left))
    time.sleep(pause)
"""


@pytest.mark.parametrize(
    ("size", "pause", "moves"), [(40, 0.0005, False), (100_000, 0.05, True)], ids=["asks", "transfers"]
)
def test_who_asks_again_and_again_transfers_nothing(size: int, pause: float, moves: bool) -> None:
    """Rank 0 asks its own store whether all are there: in small messages."""
    words = [sys.executable, "-S", "-c", _TALKS, str(size), str(pause)]
    with subprocess.Popen(words) as process:
        asks, sampler = Rank(0, 0, process.pid), Sampler()

        def look() -> int:
            sampler._sockets_at = 0.0  # it is looked every other second otherwise
            sampler.look_at_sockets([asks], always=True)
            process_facts = sampler.process(process.pid)
            assert process_facts is not None
            return process_facts.net_bytes or 0

        try:
            wait_for(lambda: look() > 0)
            first = look()  # what its sockets have moved is known between two looks
            wait_for(lambda: look() > first + 200_000)
            sample = sampler.sample(asks, {})
        finally:
            asks.close()
            process.kill()

    assert moves == ((sample.sent_itself or 0) >= 64 * 1024)


@pytest.mark.parametrize(("notice_after", "is_looked_at"), [(3.0, True), (10.0, False)])
def test_sockets_are_looked_at_twice_before_a_notice_comes(notice_after: float, is_looked_at: bool) -> None:
    """A second after the last deed, where the notice comes three seconds after it."""
    rank, sampler = Rank(0, 0, os.getpid()), Sampler(notice_after)
    rank.progress.note_deed(time.monotonic() - 1.2)
    rank.progress.take(sampler.sample(rank, {}))
    sampler.look_at_sockets([rank])
    sample = sampler.sample(rank, {})
    rank.close()

    assert is_looked_at == (sample.sent is not None)


_MONITOR = """
import threading, time
def draws():
    while True:
        print("bar", time.time(), flush=True)
        time.sleep(0.02)
threading.Thread(target=draws, daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


def test_what_a_monitor_thread_prints_is_not_the_main_threads(tmp_path: Path) -> None:
    """The kernel counts what each thread writes: tqdm's monitor redraws the bar of a rank that sleeps."""
    output = tmp_path / "output"
    words = [sys.executable, "-S", "-c", _MONITOR]
    with output.open("wb") as file, subprocess.Popen(words, stdout=file) as process:
        sleeps, sampler = Rank(0, 0, process.pid), Sampler()
        try:
            wait_for(lambda: b"ready" in output.read_bytes())
            wait_for(lambda: proc.stat(process.pid).state == "S")  # type: ignore[union-attr]
            first = sampler.sample(sleeps, {})
            size = output.stat().st_size
            wait_for(lambda: output.stat().st_size > size + 200)
            sleeps.note_lines([b"bar"])
            second = sampler.sample(sleeps, {})
        finally:
            sleeps.close()
            process.kill()

    progress = Progress(first.at - 60.0)
    progress.take(first)
    progress.take(second)
    assert second.printed
    assert 60.0 <= progress.stuck_for(second.at)


# --- torch before 2.8, which only counts its calls with Gloo


BACKWARD = [
    ["_engine_run_backward", "/opt/env/site-packages/torch/autograd/graph.py", 824],
    ["main", "/t.py", 9],
]


def counting(begun: int, **more: Any) -> dict[str, Any]:
    """A hook's answer with torch's sequence number of the default group."""
    return {"sequences": {"0": [begun, 0, 0]}, "torch": "2.7.1", **more}


@pytest.fixture(name="trainer")
def _trainer() -> Iterator[Rank]:
    """A rank that trains with DDP, and has called nothing itself: its hook has made no ring."""
    trainer = rank()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        trainer.line = Line(ours, os.getpid())
        trainer.line.ring_file = "/nowhere"
        trainer.initialized = trainer.was_initialized = True
        yield trainer


def test_ddps_own_collectives_are_progress_and_end_the_first_phase(trainer: Rank) -> None:
    assert ((0, 0), Phase.FIRST) == (
        _count(trainer, counting(0, place=["", "main", "/t.py", 9])),
        trainer.phase,
    )

    assert (26, 25) == _count(trainer, counting(26, place=["engine", "main", "/t.py", 9]))
    assert (Phase.RUNNING, True) == (trainer.phase, trainer.progress.pending)


def test_what_has_come_back_stays_done_until_torch_calls_again(
    trainer: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that computes in backward may sleep for a moment: that is no new collective."""
    monkeypatch.setattr(proc, "is_asleep", lambda _: True)
    awake, asleep = (counting(26, place=[kind, "main", "/t.py", 9]) for kind in ("", "engine"))
    look = counting(27, main_stack={"frames": BACKWARD})

    assert [(26, 26), (26, 26)] == [_count(trainer, each) for each in (awake, asleep)]
    assert [(27, 26), (27, 26)] == [_count(trainer, each) for each in (look, counting(27, threads=[]))]
