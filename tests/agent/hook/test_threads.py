"""What the kernel says of the threads of real programs with the hook."""

from __future__ import annotations

from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.supervisor.thread_waits import ThreadWaits

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


def test_a_wait_that_only_its_own_process_can_end(supervisor: Supervisor) -> None:
    """Neither one with a timeout, nor one for a lock that other processes have, too."""
    process = supervisor.start(LOCKED)

    def wait() -> bool:
        answer = supervisor.ask(supervisor.line("rank"), "dump")
        threads = {thread["name"]: thread["tid"] for thread in answer["threads"]}
        waits = ThreadWaits((process.pid, tid) for tid in threads.values())
        supervisor.hooks.listen(0.05)
        waits.again()
        found = {name for name, tid in threads.items() if waits.on_lock((process.pid, tid))}
        assert not any(waits.asks((process.pid, tid)) for tid in threads.values())
        return len(threads) == 4 and found == {"MainThread", "for ever"}

    supervisor.until(wait)


def test_a_hook_that_asks_for_the_gil_in_vain(supervisor: Supervisor) -> None:
    """Native code holds it; while the hook still waits for a word, it asks for nothing."""
    process = supervisor.start(HOLDS)
    line = supervisor.line("rank")
    supervisor.ask(line, "count")
    idle = ThreadWaits([(process.pid, line.thread)])
    idle.again()
    assert not idle.asks((process.pid, line.thread))
    (supervisor.folder / "go").touch()

    def asks() -> bool:
        line.ask(b"count")
        waits = ThreadWaits([(process.pid, line.thread)])
        supervisor.hooks.listen(max(0.0, waits.due - waits.at))
        waits.again()
        return line.request is not None and waits.asks((process.pid, line.thread))

    supervisor.until(asks)
