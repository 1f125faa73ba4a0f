"""Finds where a rank stands without its stack: by its connection to the store, and by Gloo's threads.

A thread of Gloo that works on a collective waits for a futex with a timeout, an idle one without. To see that
takes the right to trace, and no tracer. A rank that has not called init_process_group has no connection to
the place where the ranks meet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddplaunch.agent.contract import Posture
from ddplaunch.agent.system import proc, tcp

_WORKER = "pt_gloo_runloop"
_OWN_PORTS = 1024
"""From here on a port may be that of another store; web servers and storage have lower ones."""


def of(pids: Sequence[int], port: int) -> dict[int, str]:
    """Return the posture of each rank by its pid. `port`: where the ranks meet; 0: it is not known."""
    sockets = {pid: proc.socket_inodes(pid) for pid in pids if proc.program(pid)}
    table = [each for each in tcp.table() if each.state != tcp.LISTEN and each.port != port] if port else []
    postures = {}
    for pid, inodes in sockets.items():
        its = workers(pid)
        if its:
            postures[pid] = _by_threads(pid, its)
        elif port:
            others = set().union(*sockets.values()) - inodes
            postures[pid] = _by_sockets(inodes, [each for each in table if each.inode not in others], port)
    return postures


def workers(pid: int) -> list[int]:
    """Return the threads of Gloo that work on collectives, two for each group."""
    return [tid for tid, name in proc.thread_names(pid).items() if name == _WORKER]


def _by_threads(pid: int, tids: Sequence[int]) -> str:
    waits = [proc.thread_wait(pid, tid) for tid in tids]
    if any(each is not None and each.timed for each in waits):
        return Posture.COLLECTIVE
    main = proc.thread_wait(pid, pid)
    # Sends and receives wait in the main thread, with a timeout; so may NCCL, of which nothing is seen here.
    may_wait = not proc.text(pid, "syscall") or (main is not None and main.timed)
    may_wait = may_wait or proc.maps_library(pid, "libcuda")
    return "" if None in waits or may_wait else Posture.OWN


def _by_sockets(inodes: Collection[int], table: Sequence[tcp.Tcp], port: int) -> str:
    """Return the posture by the sockets of one rank. `table`: without those of the other ranks."""
    own = [each for each in table if each.inode in inodes]
    others = [each for each in own if each.remote_port != port]
    if len(others) < len(own):
        return "" if others else Posture.INIT
    ends = {(each.local, each.remote) for each in table}
    strangers = [each for each in own if (each.remote, each.local) not in ends]
    return "" if any(each.remote_port >= _OWN_PORTS for each in strangers) else Posture.BEFORE
