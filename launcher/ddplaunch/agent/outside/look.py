"""Takes the evidence of ranks that ddplaunch did not start: samples over some seconds, and their stacks.

Stacks are read twice before the last look, by py-spy where it may, while the rank runs on. torch's debug
server is asked at the last look alone, for the rank moves to answer. For how long nothing had happened before
we came, the kernel knows: when a main thread last had a CPU, and when a socket last had data.

Where ranks stand is found without their stacks, too. A thread of Gloo that works on a collective waits for a
futex with a timeout, an idle one without. To see that takes the right to trace, and no tracer. A rank that
has not called init_process_group has no connection to the place where the ranks meet. A rank that calls a
collective of Gloo sends its peers a message at once. So a rank whose main thread has run for long since its
last message is in no collective. This needs no right to trace: all users see sockets.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import textwrap
import time
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import combinations
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import (
    Collective,
    Exit,
    Frame,
    LastActs,
    NodeEvidence,
    Phase,
    Posture,
    RankEvidence,
    Rendezvous,
    Setting,
    Stack,
    WatchdogPlan,
    codec,
)
from ddplaunch.agent.diagnosis.run import slow
from ddplaunch.agent.diagnosis.run import stacks as reading
from ddplaunch.agent.evidence import cgroup, py_spy, stacks
from ddplaunch.agent.outside import debug_server, find_ranks
from ddplaunch.agent.outside.debug_server import DebugServers
from ddplaunch.agent.outside.find_ranks import JobRanks
from ddplaunch.agent.platforms import places
from ddplaunch.agent.supervisor.collector import Collector, Look, shared_memory
from ddplaunch.agent.supervisor.hooks import Hooks
from ddplaunch.agent.supervisor.rank_roles import Member
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.supervisor.sampling import Sampler
from ddplaunch.agent.system import ports, proc

NOTICE_AFTER = WatchdogPlan.notice_after
"""Seconds without progress from which on a job may hang, as by default for a supervised one."""
SHORTEST, LONGEST = 4.0, NOTICE_AFTER + 1.0
"""Seconds to watch: longer if the kernel does not tell how long the ranks have been still."""
STOPS, TOO_LONG = 3.0, 3 * LONGEST
"""Seconds without movement after which a rank may have stopped for good; and the most seconds to watch."""
_FIRST = 1.5
"""Seconds that the first sample may take. Before that, no rank is known to be still."""
_SAMPLE = 0.5
_STACKS = 20.0
"""Seconds for the stacks of all ranks: py-spy reads each one's symbols, on CPUs that the ranks may be
using."""
Traces = dict[int, list[Stack]]


def evidence_of(job_ranks: JobRanks) -> NodeEvidence:
    """Return the evidence of the ranks that were found on this machine. This takes 5 to 15 seconds."""
    hooks = Hooks(lambda _line, _message: None)  # none of the ranks has one
    watch = _Watch(job_ranks, hooks)
    try:
        return watch.evidence()
    finally:
        hooks.close()
        watch.close()


class _Source:
    """A source of evidence for ranks without a hook: their debug servers, and their dumps in files."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        """`ranks`: their numbers by pid."""
        self._ranks = ranks
        self._servers = DebugServers(ranks)

    def stacks(self, pids: Collection[int], deadline: float) -> Traces:
        return self._servers.stacks(pids, deadline)

    def answers(self, pids: Collection[int], deadline: float) -> dict[int, dict[str, Any]]:
        """Return the flight recorders that there are. Files come first: a rank that is asked moves."""
        filed = debug_server.answers(self._ranks, pids, deadline)
        return {**filed, **self._servers.answers(pids, deadline)}


class _Watch:
    def __init__(self, job_ranks: JobRanks, hooks: Hooks) -> None:
        self._port = job_ranks.port
        self._frames: dict[int, list[Frame]] = {}  # of each main thread, as last read
        self._standing: dict[int, Standing] = {}
        self._ranks = [_rank(member) for member in job_ranks.members]
        python = proc.words(self._ranks[0].pid)[0]
        self._sampler = Sampler()
        source = _Source({rank.program: rank.number for rank in self._ranks})
        self._collector = Collector(
            0, python, hooks, self._sampler, self._sample, hooked=False, source=source
        )
        self._py_spy = py_spy.find(python)
        self._began = self._sampled = time.monotonic()
        if any(proc.network(rank.pid) != proc.network(os.getpid()) for rank in self._ranks):
            self._sampler.sockets_missing = "sockets: the ranks have a network of their own"

    def evidence(self) -> NodeEvidence:
        self._watch()
        now = time.monotonic()
        watched = now - self._began
        before = {rank.pid: rank.progress.stuck_for(now) for rank in self._ranks}
        evidence = self._collector.collect(self._ranks, Phase.RUNNING, Look(now + _STACKS), None, [])
        self._sample({each.pid: each.stacks for each in evidence.ranks if each.alive})
        silence = self._silence()
        ranks = []
        for rank, each in zip(self._ranks, map(self._with_call, evidence.ranks)):
            stuck = rank.progress.stuck_for(time.monotonic())
            if each.alive and before[rank.pid] >= watched - _FIRST and stuck >= before[rank.pid]:
                each = _since_before(each, watched, silence.get(rank.pid, 0.0))
            elif each.alive:
                each = dataclasses.replace(each, stuck_for=round(min(stuck, each.stuck_for), 1))
            moves = rank.progress.stack_moves or False  # the last look is one of these
            lasts = each.stuck_for >= NOTICE_AFTER  # a store may come up later than its clients
            made = each.rendezvous if lasts else None
            looked_at = dataclasses.replace(each, stack_moves=moves, rendezvous=made)
            ranks.append(looked_at if each.alive else each)
        port = 0 if self._sampler.sockets_missing else self._port
        programs = [rank.program for rank in self._ranks if rank.alive]
        standing_at, acts = postures(programs, port), last_acts(programs, port)
        ranks = [
            dataclasses.replace(
                each, posture=standing_at.get(rank.program, ""), last_acts=acts.get(rank.program)
            )
            for rank, each in zip(self._ranks, ranks)
        ]
        first = self._ranks[0].pid
        memory = cgroup.memory(pid=str(first))
        size, used = shared_memory(proc.path_from_here(first, "/dev/shm"))  # noqa: S108 - only looked at
        return dataclasses.replace(
            evidence,
            ranks=_with_phases(ranks),
            memory_limit=memory.limit,
            memory_used=memory.used,
            shm_size=size,
            shm_used=used,
            shm_peak=used,
            oom_kills=0,
            throttled=None,
        )

    def close(self) -> None:
        for rank in self._ranks:
            rank.close()

    def _watch(self) -> None:
        """Sample the ranks until we know whether they move."""
        with ThreadPoolExecutor(1) as pool:
            reader: Optional[Future[Traces]] = None
            next_stacks = self._began
            while not self._is_enough() or (reader is not None and not reader.done()):
                if reader is None and self._py_spy is not None and time.monotonic() >= next_stacks:
                    next_stacks = time.monotonic() + SHORTEST / 2
                    reader = pool.submit(self._stacks)
                traces: Traces = {}
                if reader is not None and reader.done():
                    traces, reader = reader.result(), None
                self._sample(traces)
                time.sleep(_SAMPLE)

    def _stacks(self) -> Traces:
        pids = [rank.pid for rank in self._ranks if rank.alive]
        until = time.monotonic() + _STACKS
        traces: Traces = {}
        for pid, text in py_spy.with_variables(self._py_spy or "", pids, until).items():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                traces[pid] = stacks.from_py_spy(text, pid)
                self._standing[pid] = standing(text, pid, proc.environment(pid))
        left = [pid for pid in pids if pid not in traces]
        return {**traces, **py_spy.dump(self._py_spy or "", left, until)[0]}

    def _with_call(self, rank: RankEvidence) -> RankEvidence:
        """Return the evidence with the call that the rank was in, if it still is."""
        its = self._standing.get(rank.pid)
        if its is None or not rank.alive or its.frames != reading.main(rank.stacks):
            return rank
        return dataclasses.replace(rank, stands_in=its.call, rendezvous=its.rendezvous)

    def _sample(self, traces: Optional[Traces] = None) -> None:
        """Sample all ranks, twice a second at most unless there are stacks."""
        if not traces and time.monotonic() - self._sampled < _SAMPLE:
            return
        for rank in self._ranks:
            if not rank.alive or rank.look_for_end():
                continue
            frames = reading.main((traces or {}).get(rank.pid, []))
            if frames:
                self._frames[rank.pid] = frames
            rank.progress.take(self._sampler.sample(rank, {})._replace(frames=frames or None))
            self._collector.remember([rank.pid, *rank.children])
        self._sampler.look_at_sockets(self._ranks, always=True)
        self._sampler.look_at_queues(self._ranks)
        self._sampled = time.monotonic()

    def _is_enough(self) -> bool:
        now = time.monotonic()
        watched = now - self._began
        if watched < SHORTEST:
            return False
        alive = [rank for rank in self._ranks if rank.alive]
        if all(rank.progress.stuck_for(now) < SHORTEST / 2 for rank in alive) or watched >= TOO_LONG:
            return True  # if only some move, the others are watched as long as if none did
        if watched >= LONGEST:
            # If a rank stopped just after we came, it is watched until that counts as a hang, or is over.
            still = min((rank.progress.still_for(now) for rank in alive), default=0.0)
            return not STOPS <= still < LONGEST
        silence = self._silence()
        return all(self._quiet_for(rank.pid, silence.get(rank.pid, 0.0)) >= NOTICE_AFTER for rank in alive)

    def _quiet_for(self, pid: int, silence: float) -> float:
        """Return for how many seconds a rank has not moved, as far as the kernel can show that at once."""
        slept, frames = proc.off_cpu_for(pid) or 0.0, self._frames.get(pid, [])
        waits = bool(reading.collective(frames)) or reading.in_init(frames)
        return slow.quiet_for(max(slept, silence), slept, waits)

    def _silence(self) -> dict[int, float]:
        """Return, by pid, the seconds since a socket of the rank last had data, not counting its store's."""
        try:
            traffic = ports.traffic_by_inode()
        except OSError:
            return {}
        stores = {each.inode for each in ports.table() if self._port in (each.port, each.remote_port)}
        silence = {}
        for rank in self._ranks:
            inodes = traffic.keys() & proc.socket_inodes(rank.pid) - stores
            its = [traffic[inode].idle for inode in inodes if traffic[inode].moved]
            if its:
                silence[rank.pid] = min(its)
        return silence


def _since_before(rank: RankEvidence, watched: float, silence: float) -> RankEvidence:
    """Return the evidence of a rank that has made no progress since we came, including the time before
    that.
    """
    slept = proc.off_cpu_for(rank.pid) or 0.0
    still = max(rank.still_for, slept) if rank.still_for >= watched - _FIRST else rank.still_for
    stuck = max(rank.stuck_for, silence, slept)
    return dataclasses.replace(rank, stuck_for=round(stuck, 1), still_for=round(still, 1))


def _with_phases(ranks: list[RankEvidence]) -> list[RankEvidence]:
    """Return the ranks as initialized if one of them is in a collective: none gets there before all are."""
    mains = [reading.main(rank.stacks) for rank in ranks if rank.alive]
    if not any(reading.collective(frames) and not reading.in_init(frames) for frames in mains):
        return ranks
    return [
        dataclasses.replace(rank, phase=Phase.RUNNING, initialized=True) if rank.alive else rank
        for rank in ranks
    ]


def _rank(member: Member) -> Rank:
    rank = Rank(member.rank, member.local_rank, member.program)
    rank.world_size, rank.numbered_by = member.world_size, member.numbered_by
    return rank


DEFAULT_GROUP = "0"
_WRAPPER = "torch/distributed/c10d_logger.py"
_PEERS = {"send": ("dst", "group_dst"), "recv": ("src", "group_src")}
_ROOTS = {
    **dict.fromkeys(("broadcast", "broadcast_object_list"), _PEERS["recv"]),
    **dict.fromkeys(("scatter", "scatter_object_list"), _PEERS["recv"]),
    **dict.fromkeys(("gather", "gather_object"), _PEERS["send"]),
}
_CUT = "..."
"""The end of a text that py-spy has cut off."""
_STORE = "torch/distributed/rendezvous.py"
_PORT = "MASTER_PORT"


class Standing(NamedTuple):
    """The frames of the main thread, and the call in which it waits, if that is known."""

    frames: list[Frame]
    call: Optional[Collective] = None
    rendezvous: Optional[Rendezvous] = None


def standing(text: str, pid: int, environment: Mapping[str, str]) -> Standing:
    """Return where the main thread is. `environment`: with which the process was started.

    Raises ValueError, KeyError or TypeError for a text that is not a dump.
    """
    stack = next((each for each in stacks.from_py_spy(text, pid) if each.main), None)
    threads = json.loads(text)
    raw: list[dict[str, Any]] = next(
        (each["frames"] for each in threads if stack and each.get("os_thread_id") == stack.tid), []
    )
    if stack is None or len(raw) != len(stack.frames):
        return Standing([] if stack is None else stack.frames)
    return Standing(stack.frames, _call(stack.frames, raw), _rendezvous(stack.frames, raw, environment))


def _call(frames: list[Frame], raw: list[dict[str, Any]]) -> Optional[Collective]:
    name = reading.collective(frames)
    places = [
        n for n, each in enumerate(frames) if each.file.endswith(_WRAPPER) and frames[n - 1].name == name
    ]
    if name is None or not places:
        return None
    place = places[-1]
    given = _variables(raw[place])
    arguments = given.get("args", _CUT) + given.get("kwargs", _CUT)
    site = reading.user_frame(frames)
    if _CUT in arguments or "roup" in arguments or site is None:
        return None
    inner = _variables(raw[place - 1])
    others = {**_PEERS, **_ROOTS}.get(name, ())
    peers = [int(inner[each]) for each in others if inner.get(each, "").isdecimal()]
    tag = inner.get("tag", "")
    if name in _PEERS and not (peers and tag.isdecimal()):
        return None
    return Collective(
        DEFAULT_GROUP,
        0,
        name,
        p2p=name in _PEERS,
        frames=[site],
        peer=peers[0] if peers else None,
        state="entered",
        tag=int(tag) if name in _PEERS else None,
    )


def _rendezvous(
    frames: list[Frame], raw: list[dict[str, Any]], environment: Mapping[str, str]
) -> Optional[Rendezvous]:
    """Return a call that looks for torchrun's store at a port that the program has set itself."""
    names = [frame.name for frame in frames[:2] if frame.file.endswith(_STORE)]
    its = _variables(raw[0]) if names == ["_create_c10d_store", "_env_rendezvous_handler"] else {}
    numbers = [its.get(name, "") for name in ("port", "rank", "world_size")]
    if not all(each.isdecimal() for each in numbers):
        return None
    port, given = numbers[0], environment.get(_PORT, "")
    if port == given or "start_daemon" in its:  # it opens the store itself, or rank 0 does
        return None
    return Rendezvous(
        "env",
        0.0,
        address=its.get("hostname", "").strip("\"'"),
        port=int(port),
        rank=int(numbers[1]),
        world_size=int(numbers[2]),
        frame=reading.user_frame(frames),
        settings=[Setting(_PORT, port, given=given)],
        agent_store=True,
    )


def _variables(frame: dict[str, Any]) -> dict[str, str]:
    return {str(each["name"]): str(each.get("repr") or "") for each in frame.get("locals") or ()}


# --- the evidence for a launcher that asks all its nodes

_WIDTH = 1000
"""Characters of a line: short, for the output of many nodes is merged line by line."""
NO_RANKS = "no process with RANK and LOCAL_RANK in its environment is seen"


def print_evidence(variable: str) -> int:
    """Print the evidence of the job whose processes have `variable`, NAME=VALUE. Returns the exit code.

    "": all processes that are seen here are of the job, as in a container.
    """
    name, _, value = variable.partition("=")
    missing = []
    tree = find_ranks.processes()
    try:
        job_ranks = find_ranks.ranks_of_variable(name, value, tree) if variable else ranks_in_container(tree)
    except find_ranks.NoRanksError as error:
        job_ranks, missing = find_ranks.JobRanks([]), [str(error)]
    if job_ranks.members:
        evidence = evidence_of(job_ranks)
    else:
        missing = missing or [NO_RANKS + ("" if variable else _hidden(tree))]
        evidence = NodeEvidence(0, places.host(), time.time(), Phase.STARTING, missing=missing)
    packed = base64.b64encode(zlib.compress(codec.text(evidence).encode(), 9)).decode()
    print("\n".join(textwrap.wrap(packed, _WIDTH)), flush=True)
    return Exit.OK


def _hidden(tree: find_ranks.Tree) -> str:
    """Return how many processes of a container may hold a rank unseen: to look into those takes ptrace."""
    number = sum(bool(each.command) and not each.program for each in tree.table.values())
    return f", and {number} of {len(tree.table)} processes may not be looked into (ptrace)" if number else ""


def ranks_in_container(tree: find_ranks.Tree) -> find_ranks.JobRanks:
    """Return the ranks of the one job in a container. Raises NoRanksError for several jobs."""
    job_ranks = find_ranks.ranks_of_machine(tree)
    for root in () if job_ranks.members else tree.roots():
        job_ranks = find_ranks.spawned_by(root, tree)
        if job_ranks.members:
            break
    return job_ranks


# --- sockets, and the threads of Gloo

_WORKER = "pt_gloo_runloop"
_OWN_PORTS = 1024
"""From here on a port may be that of another store; web servers and storage have lower ones."""


def postures(pids: Sequence[int], port: int) -> dict[int, str]:
    """Return the posture of each rank by its pid. `port`: where the ranks meet; 0: it is not known."""
    sockets = {pid: proc.socket_inodes(pid) for pid in pids if proc.program(pid)}
    table = (
        [each for each in ports.table() if each.state != ports.LISTEN and each.port != port] if port else []
    )
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


def _by_sockets(inodes: Collection[int], table: Sequence[ports.Tcp], port: int) -> str:
    """Return the posture by the sockets of one rank. `table`: without those of the other ranks."""
    own = [each for each in table if each.inode in inodes]
    others = [each for each in own if each.remote_port != port]
    if len(others) < len(own):
        return "" if others else Posture.INIT
    ends = {(each.local, each.remote) for each in table}
    strangers = [each for each in own if (each.remote, each.local) not in ends]
    return "" if any(each.remote_port >= _OWN_PORTS for each in strangers) else Posture.BEFORE


# --- the last acts


def last_acts(pids: Sequence[int], port: int) -> dict[int, LastActs]:
    """Return the last acts by pid; empty where they say nothing. `port`: where the ranks meet.

    With one connection between each two ranks they have one group, so that all take part in its collectives.
    """
    workers = {pid: gloo_workers(pid) for pid in pids}
    if not port or not all(workers.values()) or any(proc.maps_library(pid, "libcuda") for pid in pids):
        return {}
    try:
        traffic = ports.traffic_by_inode()
    except OSError:
        return {}
    owners = {inode: pid for pid in pids for inode in proc.socket_inodes(pid)}
    table = [each for each in ports.table() if each.state != ports.LISTEN]
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
