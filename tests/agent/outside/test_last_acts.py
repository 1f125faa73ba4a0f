"""When ranks last sent something: by real sockets, and real threads with the name of Gloo's."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import LastActs
from ddplaunch.agent.outside import look
from ddplaunch.agent.system import ports, proc

PROGRAM = """
import ctypes, socket, sys, threading

def works():
    if sys.argv[4] == "gloo":
        ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop", 0, 0, 0)  # PR_SET_NAME
    named.set()
    threading.Event().wait()

named = threading.Event()
threading.Thread(target=works, daemon=True).start()
named.wait()
store = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
port, count = int(sys.argv[2]), int(sys.argv[3])
if port:
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    print(flush=True)
else:
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    peers = [server.accept()[0] for _ in range(count)]
    print(flush=True)
for line in sys.stdin:
    {"peer": peers[0], "store": store}[line.strip()].send(b"x")
    print(flush=True)
"""
pytestmark = pytest.mark.skipif(
    proc.off_cpu_for(1) is None, reason="this kernel does not tell when threads last ran"
)


class Pair(NamedTuple):
    """Two ranks, and the port of their store."""

    first: subprocess.Popen[str]
    second: subprocess.Popen[str]
    port: int
    listens: int  # the port at which the first has met the second

    def acts(self, port: int | None = None) -> list[LastActs]:
        """Of both, in their order; empty where they say nothing."""
        pids = [self.first.pid, self.second.pid]
        found = look.last_acts(pids, self.port if port is None else port)
        return [found[pid] for pid in pids if pid in found]

    def both(self) -> list[LastActs]:
        """Of both; the sockets and threads that were seen are shown where there are none."""
        acts = self.acts()
        owners = {inode: each.pid for each in self[:2] for inode in proc.socket_inodes(each.pid)}
        seen = [(owners[each.inode], each) for each in ports.table() if each.inode in owners]
        assert 2 == len(acts), (self, seen, [proc.thread_names(each.pid) for each in self[:2]])
        return acts


@contextmanager
def pair(connections: int = 1, thread: str = "gloo") -> Iterator[Pair]:
    """Ranks with so many connections to each other."""
    with ExitStack() as stack:
        store = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = store.getsockname()[1]

        def started(peer: str) -> subprocess.Popen[str]:
            words = [sys.executable, "-c", PROGRAM, str(port), peer, str(connections), thread]
            pipe = subprocess.PIPE
            process = stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True))
            stack.callback(process.kill)
            return process

        first = started("0")
        listens = _line(first)
        second = started(listens)
        _line(second)
        _line(first)  # it has all of its connections as well
        yield Pair(first, second, port, int(listens))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"a rank has ended: {process.wait(5)}"
    return line.strip()


def sends(process: subprocess.Popen[str], to: str) -> None:
    """A byte, to the other rank or to the store."""
    print(to, file=process.stdin, flush=True)
    _line(process)


def test_the_last_message_is_one_to_another_rank_or_to_anybody_but_not_to_the_store() -> None:
    with pair() as ranks:
        sends(ranks.first, "peer")
        time.sleep(0.6)
        sends(ranks.second, "peer")
        sends(ranks.first, "store")
        first, second = ranks.both()

    assert first.sent - second.sent > 0.5
    assert first.sent - first.spoke > 0.5
    assert second.sent == second.spoke


def test_the_main_thread_ran_last_with_its_last_message() -> None:
    with pair() as ranks:
        deadline = time.monotonic() + BUSY * 5
        while not all(each.ran > 0.5 and each.worked > 0.5 for each in ranks.both()):
            assert time.monotonic() < deadline, ranks.both()
            time.sleep(0.05)
        begun = time.monotonic()
        sends(ranks.first, "store")
        first, second = ranks.both()
        took = time.monotonic() - begun  # on a busy machine we wait for each CPU whose clock we read

    assert first.ran < 0.2 + took
    assert abs(first.spoke - first.ran) < 0.2 + took
    assert first.worked > 0.5
    assert second.ran > 0.5


def test_one_rank_alone_says_nothing() -> None:
    with pair() as ranks:
        assert {} == look.last_acts([ranks.first.pid], ranks.port)


def test_several_groups_ranks_without_gloo_and_unknown_stores_say_nothing() -> None:
    """Several groups, ranks without Gloo, and a store that is not known."""
    with pair(connections=2) as ranks:
        assert [] == ranks.acts()
    with pair(thread="other") as ranks:
        assert [] == ranks.acts()
    with pair() as ranks:
        assert [] == ranks.acts(port=0)
        assert [] == ranks.acts(port=ranks.listens), "a rank has the store"
        ranks.second.kill()
        ranks.second.wait()
        assert [] == ranks.acts()
