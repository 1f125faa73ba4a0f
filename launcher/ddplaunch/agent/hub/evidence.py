"""Evidence of all nodes: asked for in rounds, from all at one moment, and kept with the ends reported since.

Each node dates its evidence by its own clock. A heartbeat's send time and its arrival show within which
bounds that clock is off. Beyond SKEW the hub converts the node's times to its own clock, so that "first"
means first.

`run` decides when a round starts; nothing here judges.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Container, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Callable, Optional

from ddplaunch.agent.contract import (
    Beat,
    Exited,
    JobEvidence,
    JobPlan,
    Lost,
    NodeEvidence,
    Phase,
    Raised,
    RankEvidence,
    Torchrun,
    Verdict,
    codec,
)
from ddplaunch.agent.contract.bundle_file import MOST_DUMPS
from ddplaunch.agent.contract.messages import RankEnded

if TYPE_CHECKING:  # the supervisor uses this module too, and needs neither of them
    from ddplaunch.agent.hub.job_record import JobRecord
    from ddplaunch.agent.hub.server import Session

COLLECT = 3.0
"""Seconds that every node has for its evidence."""
LATE = 8.0
"""Seconds until a node that has not answered counts as silent. A busy machine answers late, but by then you
know a node that is gone, or whose network is."""
_LEAST_ROOM = 320 << 10
"""Bytes for the flight recorders of one node: enough for eight ranks with the 2,000 entries that torch keeps.
"""
SKEW = 1.0
"""Seconds. A smaller difference may come from a slow message; nodes on one machine need no correction."""


@dataclass
class EvidenceRound:
    """One request to all nodes. `wanted`: those that got it; `clients`: sessions waiting for the bundle."""

    id: int
    why: str
    clients: list[Session]
    deadline: float = 0.0  # on the hub's monotonic clock
    wanted: set[int] = field(default_factory=set)
    got: dict[int, NodeEvidence] = field(default_factory=dict)
    crashes: list[tuple[int, RankEnded]] = field(default_factory=list)  # by node; see `set_aside_crash`

    @property
    def own_crashes(self) -> list[tuple[int, RankEnded]]:
        """Return the deaths set aside that our question to NCCL did not cause: node 0, which asks, lives."""
        node = self.got.get(0)
        excused = node is None or node.ras or any(text.startswith("NCCL RAS:") for text in node.missing)
        return [] if excused else self.crashes


class EvidenceRounds:
    """One round after the other. `collect` sends the request to all nodes it can reach, and returns them."""

    def __init__(self, collect: Callable[[EvidenceRound], Set[int]]) -> None:
        self._collect = collect
        self._queue: list[EvidenceRound] = []
        self._last = 0
        self.current: Optional[EvidenceRound] = None

    def request(self, why: str, now: float, client: Optional[Session] = None) -> None:
        """Start a round now, or after the rounds that were requested before."""
        self._last += 1
        self._queue.append(EvidenceRound(self._last, why, [] if client is None else [client]))
        self.start(now)

    def start(self, now: float) -> None:
        """Start the next round, if none is under way."""
        if self._queue and self.current is None:
            self.current = self._queue.pop(0)
            self.current.deadline = now + LATE
            self.current.wanted = set(self._collect(self.current))

    def add(self, number: int, evidence: NodeEvidence) -> None:
        """Take a node's evidence. Number 0 was not requested; during a round it counts as the answer."""
        if self.current is not None and number in (self.current.id, 0):
            self.current.got[evidence.node] = evidence

    def excuse(self, node: int) -> None:
        """Stop waiting for a node that has ended: it has already sent what it knew."""
        if self.current is not None:
            self.current.wanted.discard(node)

    def end_if_done(self, now: float) -> Optional[EvidenceRound]:
        """End and return the current round, if all have answered or its deadline has passed; else None."""
        done = self.current
        if done is None or not (done.wanted <= done.got.keys() or now >= done.deadline):
            return None
        self.current = None
        return done

    def set_aside_crash(self, node: int, ended: RankEnded) -> bool:
        """Keep a death for the round's end if we may have caused it, and return whether we may have.

        At the end of a hang, NCCL is asked; see `evidence.ras`.
        """
        done, end = self.current, ended.rank.exit
        if done is None or done.why != "deadline" or end is None or end.signal != signal.SIGSEGV:
            return False
        done.crashes.append((node, ended))
        return True

    def give_up(self) -> list[Session]:
        """End all rounds; return the sessions that still wait for an answer."""
        left = [*([self.current] if self.current else []), *self._queue]
        self.current, self._queue = None, []
        return [client for each in left for client in each.clients]


class Clocks:
    """Offsets of the nodes' clocks: seconds that each is ahead of the hub's."""

    def __init__(self) -> None:
        self._ahead: dict[int, float] = {}

    def note(self, node: int, sent: float, received: float) -> None:
        """Note a message `sent` by the node's clock and `received` by ours, which cannot be earlier."""
        ahead = sent - received
        self._ahead[node] = max(self._ahead.get(node, ahead), ahead)

    def ahead(self, node: int) -> float:
        ahead = self._ahead.get(node, 0.0)
        return ahead if abs(ahead) > SKEW else 0.0

    def correct_node(self, evidence: NodeEvidence) -> NodeEvidence:
        """Return the node's evidence, with its times converted to the hub's clock."""
        ahead = self.ahead(evidence.node)
        if not ahead:
            return evidence
        return replace(
            evidence,
            at=evidence.at - ahead,
            ranks=[self.correct_rank(evidence.node, rank) for rank in evidence.ranks],
            launch_exit=_moved(evidence.launch_exit, ahead),
        )

    def correct_rank(self, node: int, rank: RankEvidence) -> RankEvidence:
        """Return a rank's evidence, with its times converted to the hub's clock."""
        ahead = self.ahead(node)
        if not ahead:
            return rank
        raised: list[Raised] = [replace(each, at=each.at - ahead) for each in rank.raised]
        return replace(rank, exit=_moved(rank.exit, ahead), raised=raised)


def dump_room(
    nodes: Iterable[int], verdicts: Sequence[Verdict], evidence: Optional[JobEvidence]
) -> dict[int, int]:
    """Return how many bytes the flight recorders of each node may take. Those of blamed ranks come first.

    Nodes for which there is no room get 0, so that the bundle of thousands of ranks stays small.
    """
    wanted = sorted(nodes)
    ranks = {rank for verdict in verdicts for rank in (*verdict.ranks, *verdict.victims[:1])}
    blamed = {node for verdict in verdicts for node in verdict.nodes}
    for each in evidence.evidence if evidence else []:
        if any(rank.rank in ranks for rank in each.ranks):
            blamed.add(each.node)
    share = max(MOST_DUMPS // max(1, len(wanted)), _LEAST_ROOM)
    places = MOST_DUMPS // share
    order = sorted(wanted, key=lambda node: (node not in blamed, node))
    return {node: share if place < places else 0 for place, node in enumerate(order)}


def _moved(exit_: Optional[Exited], ahead: float) -> Optional[Exited]:
    return None if exit_ is None else replace(exit_, at=exit_.at - ahead)


def job_evidence(
    plan: JobPlan,
    why: str,
    at: float,
    nodes: dict[int, NodeEvidence],
    silent: list[int],
    deaths: dict[tuple[int, int], RankEvidence],
    hosts: dict[int, str],
    lost: list[Lost],
) -> JobEvidence:
    """Return the job's evidence: the nodes' answers, and the deaths since then (by node and pid)."""
    evidence = []
    for number in sorted({*nodes, *(node for node, _ in deaths)}):
        ends = {pid: death for (node, pid), death in deaths.items() if node == number}
        # A node whose ranks ended before the first round has reported only their ends.
        node = nodes.get(number) or NodeEvidence(number, hosts.get(number, ""), at, Phase.ENDED)
        ranks = [_latest(rank, ends.pop(rank.pid, None)) for rank in node.ranks]
        # Another process has taken the place of one that died before.
        seen = {rank.rank for rank in ranks}
        gone = {death.rank: death for death in ends.values() if death.rank not in seen}
        evidence.append(replace(node, ranks=[*ranks, *gone.values()]))
    return JobEvidence(
        job=plan.job,
        nodes=plan.nodes,
        world_size=None if plan.nproc_per_node is None else plan.nodes * plan.nproc_per_node,
        why=why,
        at=at,
        evidence=evidence,
        silent=silent,
        lost=lost,
        notice_after=plan.watchdog.notice_after,
        names=plan.names,
        platform=plan.platform,
    )


def _latest(last: RankEvidence, death: Optional[RankEvidence]) -> RankEvidence:
    if death is None or (not last.alive and len(last.raised) >= len(death.raised)):
        return last
    return death


class EvidenceStore:
    """Evidence of all nodes as it arrives. All times in it are on the hub's clock."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._clocks = Clocks()
        self._known: dict[int, NodeEvidence] = {}  # the last evidence of each node
        self._deaths: dict[tuple[int, int], RankEvidence] = {}  # by node and pid
        self._members: dict[tuple[int, ...], list[int]] = {}  # of groups
        self._ended: set[tuple[int, int]] = set()  # node and pid
        self._replaced: set[tuple[int, int]] = set()  # node and pid of workers before the last restart

    def note_clock(self, node: int, at: float) -> None:
        """Note the node's clock: `at`, sent just now, in seconds since the epoch."""
        self._clocks.note(node, at, time.time())

    def note_beat(self, node: int, beat: Beat) -> None:
        """Note the clock from a heartbeat. Raises ContractError if the heartbeat is another node's."""
        if beat.node != node:
            raise codec.ContractError(f"node {node} sends the heartbeat of node {beat.node}")
        self.note_clock(node, beat.at)

    def add_evidence(self, node: int, sent: NodeEvidence) -> NodeEvidence:
        """Keep a node's evidence; return it on our clock. Raises ContractError if it is another node's."""
        if sent.node != node:
            raise codec.ContractError(f"node {node} sends the evidence of node {sent.node}")
        evidence = self._clocks.correct_node(sent)
        shared = replace(evidence, ranks=[self._shared(rank) for rank in evidence.ranks])
        self._known[evidence.node] = shared
        return shared

    def _shared(self, rank: RankEvidence) -> RankEvidence:
        """Return the evidence with each group's list of members shared by all ranks: it may be long."""
        known = self._members
        groups = [
            replace(each, ranks=known.setdefault(tuple(each.ranks), each.ranks)) for each in rank.groups
        ]
        return replace(rank, groups=groups)

    def add_death(self, node: int, rank: RankEvidence) -> RankEvidence:
        """Keep a rank's end. Returns it with its times on the hub's clock."""
        rank = self._clocks.correct_rank(node, rank)
        self._deaths[node, rank.pid] = rank
        self._ended.add((node, rank.pid))
        return rank

    def add_rendezvous_call(self, node: int, rank: RankEvidence) -> None:
        """Keep a rank that has just called init_process_group, before any round of evidence."""
        evidence = self._known.get(node) or NodeEvidence(node, "", time.time(), Phase.INIT)
        others = [each for each in evidence.ranks if each.pid != rank.pid]
        self._known[node] = replace(evidence, ranks=[*others, self._clocks.correct_rank(node, rank)])

    def add_torchrun(self, node: int, torchrun: Torchrun) -> None:
        """Keep a torchrun that has just been started, before any round of evidence."""
        evidence = self._known.get(node) or NodeEvidence(node, "", time.time(), Phase.INIT)
        self._known[node] = replace(evidence, torchruns=[torchrun])

    def is_known(self, node: int, rank: RankEvidence) -> bool:
        """Whether the end of this process was reported before: a node that rejoins repeats its reports."""
        return (node, rank.pid) in self._ended

    def is_past(self, node: int, rank: RankEvidence) -> bool:
        """Whether the rank's process belongs to an earlier attempt of the launch command."""
        return (node, rank.pid) in self._replaced

    def forget_ranks(self, node: int, present: Container[int]) -> None:
        """Forget the node's ranks except the `present` pids: the launch command has started new ones."""
        evidence = self._known.pop(node, None)
        known = [] if evidence is None else evidence.ranks
        gone = {pid for pid in (*(rank.pid for rank in known), *self._dead_pids(node)) if pid not in present}
        self._replaced |= {(node, pid) for pid in gone}
        for pid in gone:
            self._deaths.pop((node, pid), None)
        left = [rank for rank in known if rank.pid not in gone]
        if evidence is not None and left:
            self._known[node] = replace(evidence, ranks=left)

    def _dead_pids(self, node: int) -> list[int]:
        return [pid for other, pid in self._deaths if other == node]

    def gather(
        self,
        why: str,
        lost: list[Lost],
        done: Optional[EvidenceRound] = None,
        behind: Container[int] = (),
    ) -> JobEvidence:
        """Return the job's evidence: that of round `done`, or without a round the last evidence of each node.

        `behind`: nodes whose ended ranks belong to an earlier attempt of the launch commands.
        """
        late = set() if done is None else done.wanted - done.got.keys()
        known = {
            node: _living(evidence) if node in behind else evidence
            for node, evidence in self._known.items()
            if node not in late
        }
        deaths = {key: rank for key, rank in self._deaths.items() if key[0] not in behind}
        silent = sorted({*(each.node for each in lost), *late})
        plan, agreed = replace(self._record.plan, nodes=len(self._record.members)), self._record.agreed
        hosts = {number: node.host for number, node in self._record.nodes.items()}
        evidence = job_evidence(plan, why, time.time(), known, silent, deaths, hosts, lost)
        if agreed is None:
            return evidence
        return replace(evidence, master_addr=agreed.master_addr, master_port=agreed.master_port)


def _living(evidence: NodeEvidence) -> NodeEvidence:
    return replace(evidence, ranks=[rank for rank in evidence.ranks if rank.alive])
