"""Reads when each rank last sent something to another, and when its threads last had a CPU.

A rank that calls a collective of Gloo sends its peers a message at once. So a rank whose main thread has run
for long since its last message is in no collective. This needs no right to trace: all users see sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Optional

from ddplaunch.agent.contract import LastActs
from ddplaunch.agent.outside import posture
from ddplaunch.agent.system import proc, tcp


def of(pids: Sequence[int], port: int) -> dict[int, LastActs]:
    """Return the last acts by pid; empty where they say nothing. `port`: where the ranks meet.

    With one connection between each two ranks they have one group, so that all take part in its collectives.
    """
    workers = {pid: posture.workers(pid) for pid in pids}
    if not port or not all(workers.values()) or any(proc.maps_library(pid, "libcuda") for pid in pids):
        return {}
    try:
        traffic = tcp.traffic_by_inode()
    except OSError:
        return {}
    owners = {inode: pid for pid in pids for inode in proc.socket_inodes(pid)}
    table = [each for each in tcp.table() if each.state != tcp.LISTEN]
    owner = {(each.local, each.remote): owners.get(each.inode) for each in table}
    ends: Counter[frozenset[int]] = Counter()  # of connections, by the two ranks
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
    if not ends or ends != one_each:  # of one rank alone, as in a pod, no peer is seen
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
