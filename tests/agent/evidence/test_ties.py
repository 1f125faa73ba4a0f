"""For which process another one waits, and who holds its lock: real processes, asleep in a real kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import TERMINAL, Tie
from ddplaunch.agent.evidence import ties
from ddplaunch.agent.system import proc


@contextmanager
def family(program: str) -> Iterator[list[int]]:
    """A process of Python that runs `program`, and its descendants, once all are asleep."""
    words = [sys.executable, "-c", f"import os, socket, subprocess, sys, time\n{program}"]
    with subprocess.Popen(words, start_new_session=True) as process:
        pids = [process.pid]
        try:
            pids = _until_asleep(process.pid)
            yield pids
        finally:
            for pid in {*pids, *_below(process.pid)}:
                os.kill(pid, 9)


def _below(pid: int) -> list[int]:
    children = proc.children(pid)
    return [pid, *(each for child in children for each in _below(child))]


def _until_asleep(pid: int) -> list[int]:
    """Wait until none of them has woken up between two looks."""
    deadline = time.monotonic() + BUSY * 20
    before: object = None
    while True:
        pids = _below(pid)
        now = [(each, proc.usage(each), proc.is_asleep(each)) for each in pids]
        if now == before and all(asleep for *_, asleep in now):
            return pids
        assert time.monotonic() < deadline, now
        before = now
        time.sleep(0.3)


def tie_of(pids: list[int], number: int = 0) -> Tie | None:
    """Of the first one, without the commands."""
    tie = ties.read_tie(pids[number], ties.Ends(pids))
    return None if tie is None else replace(tie, commands=[])


def test_a_child_for_whose_end_it_waits() -> None:
    with family("subprocess.run(['sleep', '60'])") as pids:
        tie = ties.read_tie(pids[0], ties.Ends(pids))

    assert Tie("end", "", [pids[1]], ["sleep 60"]) == tie


def test_a_child_that_fills_the_pipe_of_a_parent_that_waits_for_its_end() -> None:
    with family("subprocess.Popen(['cat', '/dev/zero'], stdout=-1).wait()") as pids:
        found = tie_of(pids), tie_of(pids, 1)

    assert (Tie("end", "", [pids[1]]), Tie("room", "a pipe", [pids[0]])) == found


def test_who_has_a_pipe_open_for_writing() -> None:
    with family("subprocess.Popen(['sleep', '60'], stdout=-1).stdout.read()") as pids:
        assert Tie("data", "a pipe", [pids[1]]) == tie_of(pids)


def test_who_writes_to_both_pipes_of_communicate() -> None:
    with family("subprocess.Popen(['sleep', '60'], stdout=-1, stderr=-1).communicate()") as pids:
        assert Tie("data", "a pipe", [pids[1]]) == tie_of(pids)


def test_who_has_the_other_end_of_a_unix_socket() -> None:
    program = "mine, other = socket.socketpair()\nif os.fork() == 0:\n    mine.close()\n    time.sleep(60)\n"
    with family(f"{program}other.close()\nmine.recv(1)") as pids:
        assert Tie("data", "a Unix socket", [pids[1]]) == tie_of(pids)


def test_who_has_the_other_end_of_a_tcp_connection() -> None:
    program = (
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "mine = socket.create_connection(server.getsockname())\nother, _ = server.accept()\n"
        "if os.fork() == 0:\n    mine.close()\n    time.sleep(60)\nother.close()\n"
    )
    with family(f"{program}mine.recv(1)") as pids:
        tie = tie_of(pids)
        stranger = ties.read_tie(pids[0], ties.Ends(pids[:1]))

    assert tie is not None
    assert tie.address.startswith("127.0.0.1:")
    assert Tie("data", "TCP", [pids[1]], [], tie.address) == tie
    assert Tie("data", "TCP", [], [], tie.address) == stranger


LOOP = "loop = asyncio.new_event_loop()\nloop.add_reader(tty, print)\nloop.run_forever()"


@pytest.mark.parametrize("way", ["os.read(tty, 1)", "select.select([tty], [], [])", LOOP])
def test_a_terminal_from_which_it_reads(way: str) -> None:
    """readline waits in select(2), and the prompt of an event loop in epoll_wait(2)."""
    with family(f"import asyncio, select\n_, tty = os.openpty()\n{way}") as pids:
        tie = tie_of(pids)
        links = [proc.link(pids[0], f"fd/{each}") for each in proc.descriptors(pids[0])]

    assert tie is not None
    assert Tie("data", TERMINAL, [], [], tie.address) == tie
    assert tie.address in [each for each in links if each.startswith("/dev/pts/")]


POLLS = (
    "import select\nsockets, pipe = socket.socketpair(), os.pipe()\npoll = select.poll()\n"
    "poll.register(sockets[0], select.POLLIN)\npoll.register(pipe[0], select.POLLIN)\npoll.poll()"
)


SERVER = (
    "import asyncio\nserver = socket.create_server(('127.0.0.1', 0))\n_, tty = os.openpty()\n"
    f"{LOOP.replace('loop.run', 'loop.add_reader(server, print); loop.run')}"
)


@pytest.mark.parametrize(
    "program",
    [
        "time.sleep(60)",
        POLLS,
        "import select\nselect.select([os.openpty()[1], os.pipe()[0]], [], [])",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        SERVER,
        f"import asyncio\n{LOOP.replace('loop.add_reader(tty, print)', '')}",
    ],
    ids=[
        "a clock",
        "one of two that differ",
        "a terminal or a pipe",
        "a lock",
        "a server with a terminal",
        "a loop",
    ],
)
def test_who_waits_for_no_process_that_is_known(program: str) -> None:
    with family(program) as pids:
        assert tie_of(pids) is None


LOCK = (
    "import ctypes, threading\nlib = ctypes.CDLL(None)\nlock = (ctypes.c_char * 64)()\n"
    "lib.pthread_mutex_init(lock, None)\nready = threading.Event()\n"
    "def hold():\n    lib.pthread_mutex_lock(lock)\n    ready.set()\n    time.sleep(60)\n"
    "threading.Thread(target=hold).start()\nready.wait()\n"
)


def test_the_thread_that_holds_a_mutex() -> None:
    with family(f"{LOCK}lib.pthread_mutex_lock(lock)") as pids:
        mutex = ties.read_mutex(pids[0], [])
        threads = {*proc.thread_names(pids[0])} - {pids[0]}

    assert mutex is not None
    assert (pids[0], True) == (mutex.pid, mutex.owner in threads)


def test_the_thread_of_its_parent_that_held_a_mutex_when_it_was_forked() -> None:
    """Where the parent is not asked, nobody is named: another thread may have the number by now."""
    with family(f"{LOCK}pid = os.fork()\nlib.pthread_mutex_lock(lock) if not pid else os.wait()") as pids:
        mutex = ties.read_mutex(pids[1], [pids[0]])
        unknown = ties.read_mutex(pids[1], [])
        threads = {*proc.thread_names(pids[0])}

    assert mutex is not None
    assert (pids[0], True, None) == (mutex.pid, mutex.owner in threads, unknown)


@pytest.mark.parametrize(
    "program",
    [
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        "import threading\nthreading.Event().wait()",
        "import queue\nqueue.Queue().get(timeout=60)",
        "time.sleep(60)",
    ],
    ids=["a lock of Python", "an event", "a wait with a timeout", "a clock"],
)
def test_what_is_no_mutex_has_no_holder(program: str) -> None:
    with family(program) as pids:
        assert ties.read_mutex(pids[0], []) is None
