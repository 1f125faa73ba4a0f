"""Finds where ranks are without their stacks: from sockets, and from Gloo's threads.

A Gloo thread that works on a collective waits for a futex with a timeout, an idle one without. Seeing that
takes the right to trace, but no tracer. A rank that has not called init_process_group has no connection to
the place where the ranks meet.

A rank that calls a Gloo collective sends its peers a message at once. So if a rank's main thread has run for
long since its last message, the rank is in no collective. That needs no right to trace, because all users can
see sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Optional

from ddplaunch.agent.contract import LastActs, Posture
from ddplaunch.agent.system import proc, tcp

_WORKER = "pt_gloo_runloop"
_OWN_PORTS = 1024
"""From this port on, a port may belong to another store; web servers and storage have lower ones."""


def postures(pids: Sequence[int], port: int) -> dict[int, str]:
    """Return the posture of each rank, by pid. `port`: where the ranks meet; 0: it is not known."""
    sockets = {pid: proc.socket_inodes(pid) for pid in pids if proc.program(pid)}
    table = [each for each in tcp.table() if each.state != tcp.LISTEN and each.port != port] if port else []
    postures = {}
    for pid, inodes in sockets.items():
        its = gloo_workers(pid)
        if its:
            postures[pid] = _by_threads(pid, its)
        elif port:
            others = set().union(*sockets.values()) - inodes
            postures[pid] = _by_sockets(inodes, [each for each in table if each.inode not in others], port)
    return postures


def gloo_workers(pid: int) -> list[int]:
    """Return the Gloo threads that work on collectives. There are two for each group."""
    return [tid for tid, name in proc.thread_names(pid).items() if name == _WORKER]


def _by_threads(pid: int, tids: Sequence[int]) -> str:
    waits = [proc.thread_wait(pid, tid) for tid in tids]
    if any(each is not None and each.timed for each in waits):
        return Posture.COLLECTIVE
    main = proc.thread_wait(pid, pid)
    # Sends and receives wait in the main thread, with a timeout. So may NCCL, of which nothing can be seen
    # here.
    may_wait = not proc.text(pid, "syscall") or (main is not None and main.timed)
    may_wait = may_wait or proc.maps_library(pid, "libcuda")
    return "" if None in waits or may_wait else Posture.OWN


def _by_sockets(inodes: Collection[int], table: Sequence[tcp.Tcp], port: int) -> str:
    """Return the posture from the sockets of one rank. `table`: without those of the other ranks."""
    own = [each for each in table if each.inode in inodes]
    others = [each for each in own if each.remote_port != port]
    if len(others) < len(own):
        return "" if others else Posture.INIT
    ends = {(each.local, each.remote) for each in table}
    strangers = [each for each in own if (each.remote, each.local) not in ends]
    return "" if any(each.remote_port >= _OWN_PORTS for each in strangers) else Posture.BEFORE


# --- the last acts


def last_acts(pids: Sequence[int], port: int) -> dict[int, LastActs]:
    """Return the last acts by pid; empty if they say nothing. `port`: where the ranks meet.

    If there is one connection between each two ranks, they have one group, so all take part in its
    collectives.
    """
    workers = {pid: gloo_workers(pid) for pid in pids}
    if not port or not all(workers.values()) or any(proc.maps_library(pid, "libcuda") for pid in pids):
        return {}
    try:
        traffic = tcp.traffic_by_inode()
    except OSError:
        return {}
    owners = {inode: pid for pid in pids for inode in proc.socket_inodes(pid)}
    table = [each for each in tcp.table() if each.state != tcp.LISTEN]
    owner = {(each.local, each.remote): owners.get(each.inode) for each in table}
    ends: Counter[frozenset[int]] = Counter()  # of connections, by the two ranks they join
    sent: dict[int, float] = {}
    spoke: dict[int, float] = {}
    for each in table:
        pid, peer = owners.get(each.inode), owner.get((each.remote, each.local))
        if pid is None or each.inode not in traffic:
            continue
        unsent = traffic[each.inode].unsent
        spoke[pid] = min(unsent, spoke.get(pid, unsent))
        if peer is not None and peer != pid and port not in (each.port, each.remote_port):
            ends[frozenset((pid, peer))] += 1
            sent[pid] = min(unsent, sent.get(pid, unsent))
    one_each = {frozenset(pair): 2 for pair in combinations(pids, 2)}
    if not ends or ends != one_each:  # for a single rank, as in a pod, no peer can be seen
        return {}
    acts = {pid: _last(pid, workers[pid], sent[pid], spoke[pid]) for pid in pids}
    return {pid: its for pid, its in acts.items() if its is not None}


def _last(pid: int, workers: Sequence[int], sent: float, spoke: float) -> Optional[LastActs]:
    ran = proc.off_cpu_for(pid)
    worked = [proc.off_cpu_for(pid, tid) for tid in workers]
    known = [each for each in worked if each is not None]
    if ran is None or len(known) < len(worked):
        return None
    return LastActs(round(sent, 3), round(spoke, 3), round(ran, 3), round(min(known), 3))
