"""What the kernel says of the threads of real programs with the hook."""

from __future__ import annotations

import os
import threading
import time

from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.evidence.waits import ThreadWaits
from ddplaunch.agent.system import proc

LOCKED = """
import multiprocessing, threading
lock, shared = threading.Lock(), multiprocessing.Lock()
lock.acquire(), shared.acquire()
def timed():
    while not lock.acquire(timeout=30): pass
threading.Thread(target=lock.acquire, name="for ever", daemon=True).start()
threading.Thread(target=timed, name="timed", daemon=True).start()
threading.Thread(target=shared.acquire, name="of processes", daemon=True).start()
print("up", flush=True)
lock.acquire()
"""
HOLDS = """
import ctypes, os, time
libc = ctypes.PyDLL(None)
while not os.path.exists("go"):
    time.sleep(0.01)
while True:
    libc.pause()
"""


def test_only_a_lock_without_a_timeout_is_a_wait_that_its_own_process_alone_can_end(
    supervisor: Supervisor,
) -> None:
    process = supervisor.start(LOCKED)

    def wait() -> bool:
        answer = supervisor.ask(supervisor.line("rank"), "dump")
        threads = {thread["name"]: thread["tid"] for thread in answer["threads"]}
        its_threads = [(process.pid, tid) for tid in threads.values()]
        waits = ThreadWaits(its_threads, its_threads)
        while waits.is_open:
            supervisor.hooks.listen(0.02)
            waits.look_again()
        found = {name for name, tid in threads.items() if waits.is_on_lock((process.pid, tid))}
        assert not any(waits.asks_for_gil((process.pid, tid)) for tid in threads.values())
        return len(threads) == 4 and found == {"MainThread", "for ever"}

    supervisor.until(wait)


def test_a_hook_that_asks_for_the_gil_in_vain_is_told_from_one_that_waits_for_a_word(
    supervisor: Supervisor,
) -> None:
    process = supervisor.start(HOLDS)
    line = supervisor.line("rank")
    supervisor.ask(line, "count")
    idle = ThreadWaits((), [(process.pid, line.thread)])
    while idle.is_open:
        idle.look_again()
    assert not idle.asks_for_gil((process.pid, line.thread))
    (supervisor.folder / "go").touch()

    def asks() -> bool:
        line.ask(b"count")
        waits = ThreadWaits((), [(process.pid, line.thread)])
        while waits.is_open:
            supervisor.hooks.listen(0.02)
            waits.look_again()
        return line.request is not None and waits.asks_for_gil((process.pid, line.thread))

    supervisor.until(asks)


def test_a_second_look_is_taken_however_late() -> None:
    lock = threading.Lock()
    with lock:
        thread = threading.Thread(target=lock.acquire, daemon=True)
        thread.start()
        waiting = (os.getpid(), thread.native_id or 0)
        while proc.thread_wait(*waiting) is None:
            time.sleep(0.01)
        waits = ThreadWaits([waiting])
        time.sleep(0.6)  # longer than any bound of the looks
        while waits.is_open:
            waits.look_again()

        assert waits.is_on_lock(waiting)
    thread.join()
