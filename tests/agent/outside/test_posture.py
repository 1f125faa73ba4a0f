"""Where a rank stands without its stack: by real threads with the name of Gloo's, and by real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Callable

import pytest

from ddplaunch.agent.contract import Posture
from ddplaunch.agent.outside import look

PROGRAM = """
import ctypes, sys, threading

def works(timed):
    ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop", 0, 0, 0)  # PR_SET_NAME
    ready.release()
    wait(timed)

def wait(timed):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=1000 if timed else -1)

ready = threading.Semaphore(0)
for timed in sys.argv[2]:
    threading.Thread(target=works, args=(timed == "t",), daemon=True).start()
    ready.acquire()
print(flush=True)
wait(sys.argv[1] == "t")
"""
CONNECTS = """
import socket, sys, time
sockets = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print(flush=True)
time.sleep(1000)  # until the test ends it
"""
DEADLINE = 10.0


@contextmanager
def started(program: str, *words: str) -> Iterator[int]:
    """The pid of a program that has said that it is ready."""
    with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def settles(wanted: str, found_now: Callable[[], str]) -> str:
    """What is found, as soon as it is what is wanted: a thread comes to its wait a moment later."""
    until = time.monotonic() + DEADLINE
    while (found := found_now()) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("main", "workers", "wanted"),
    [
        ("u", "ut", Posture.COLLECTIVE),
        ("t", "tu", Posture.COLLECTIVE),
        ("u", "uu", Posture.OWN),
        ("t", "uu", ""),
    ],
    ids=["one works", "the main thread waits too", "both are idle", "the main thread may receive"],
)
def test_a_thread_of_gloo_that_works_is_told_from_a_waiting_one(main: str, workers: str, wanted: str) -> None:
    with started(PROGRAM, main, workers) as pid:
        assert wanted == settles(wanted, lambda: look.postures([pid], 0)[pid])


def test_a_connection_to_the_store_is_told_from_one_to_another_rank() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as store,
        closing(socket.create_server(("127.0.0.1", 0))) as other,
    ):
        port, elsewhere = (each.getsockname()[1] for each in (store, other))

        def found(*ports: int, ranks: Sequence[int] = ()) -> str:
            with started(CONNECTS, *map(str, ports)) as pid:
                accepted = [other.accept() for each in ports if each == elsewhere]
                postures = look.postures([pid, *ranks], port)
                for each, _ in accepted:
                    each.close()
            return postures[pid]

        assert Posture.BEFORE == found()
        assert Posture.INIT == found(port)
        assert "" == found(port, elsewhere)
        assert Posture.BEFORE == found(elsewhere), "a server of its own"
        assert "" == found(elsewhere, ranks=[os.getpid()]), "a server of another rank"


def test_where_the_ranks_meeting_point_is_unknown_no_connection_says_anything() -> None:
    with started(CONNECTS) as pid:
        assert {} == look.postures([pid], 0)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    with started(CONNECTS) as pid:
        pass

    assert {} == look.postures([pid], 1)
