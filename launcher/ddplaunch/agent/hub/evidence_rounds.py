"""One round of evidence: requested from all nodes at one moment, with what dead ranks left behind.

Nodes date what they saw by their own clocks. What a beat says of the time it was sent, and when it came,
bounds how far a node's clock is off; beyond SKEW its times are moved onto the hub's clock, so that "first"
means first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Callable, Optional

from ddplaunch.agent.contract import (
    Exited,
    JobEvidence,
    JobPlan,
    Lost,
    NodeEvidence,
    Phase,
    Raised,
    RankEvidence,
)

if TYPE_CHECKING:
    from ddplaunch.agent.hub.server import Session

COLLECT = 3.0
"""Seconds every node has for its evidence."""
LATE = 8.0
"""Seconds until a node that has not answered is named silent. A busy machine is slow to bring an answer, too;
of one that is gone, or whose network is, it is known by then."""
SKEW = 1.0
"""Seconds. Less may as well be a slow message, and nodes of one machine are exactly right as they are."""


@dataclass
class EvidenceRound:
    """`wanted` are the nodes that were asked; `askers` the control sessions that wait for the answer."""

    id: int
    why: str
    askers: list[Session]
    deadline: float = 0.0  # on the hub's monotonic clock
    wanted: set[int] = field(default_factory=set)
    got: dict[int, NodeEvidence] = field(default_factory=dict)


class EvidenceRounds:
    """One round after the other. `collect` asks all nodes that can be asked, and says which these are."""

    def __init__(self, collect: Callable[[EvidenceRound], set[int]]) -> None:
        self._collect = collect
        self._queue: list[EvidenceRound] = []
        self._last = 0
        self.current: Optional[EvidenceRound] = None

    def ask(self, why: str, now: float, asker: Optional[Session] = None) -> None:
        """Now, or after those that were asked for before."""
        self._last += 1
        self._queue.append(EvidenceRound(self._last, why, [] if asker is None else [asker]))
        self.start(now)

    def start(self, now: float) -> None:
        """The next round, when none is under way."""
        if self._queue and self.current is None:
            self.current = self._queue.pop(0)
            self.current.deadline = now + LATE
            self.current.wanted = self._collect(self.current)

    def hear(self, number: int, evidence: NodeEvidence) -> None:
        """Number 0: what a node tells unasked. In a round it is as good as an answer, and may be the last."""
        if self.current is not None and number in (self.current.id, 0):
            self.current.got[evidence.node] = evidence

    def finished(self, now: float) -> Optional[EvidenceRound]:
        """The round under way, if all have answered or it is time; it is over then."""
        done = self.current
        if done is None or not (done.wanted <= done.got.keys() or now >= done.deadline):
            return None
        self.current = None
        return done

    def give_up(self) -> list[Session]:
        """No more rounds: who still waits for an answer."""
        left = [*([self.current] if self.current else []), *self._queue]
        self.current, self._queue = None, []
        return [asker for each in left for asker in each.askers]


class Clocks:
    """Offsets of the nodes' clocks: seconds that each is ahead of the hub's."""

    def __init__(self) -> None:
        self._ahead: dict[int, float] = {}

    def hear(self, node: int, sent: float, received: float) -> None:
        """A message `sent` by the node's clock came at `received` by ours: no later than that it was sent."""
        ahead = sent - received
        self._ahead[node] = max(self._ahead.get(node, ahead), ahead)

    def ahead(self, node: int) -> float:
        ahead = self._ahead.get(node, 0.0)
        return ahead if abs(ahead) > SKEW else 0.0

    def node(self, evidence: NodeEvidence) -> NodeEvidence:
        """The node's evidence, with its times on the hub's clock."""
        ahead = self.ahead(evidence.node)
        if not ahead:
            return evidence
        return replace(
            evidence,
            at=evidence.at - ahead,
            ranks=[self.rank(evidence.node, rank) for rank in evidence.ranks],
            launch_exit=_moved(evidence.launch_exit, ahead),
        )

    def rank(self, node: int, rank: RankEvidence) -> RankEvidence:
        """A rank's evidence, likewise."""
        ahead = self.ahead(node)
        if not ahead:
            return rank
        raised: list[Raised] = [replace(each, at=each.at - ahead) for each in rank.raised]
        return replace(rank, exit=_moved(rank.exit, ahead), raised=raised)


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
    """Return all that is known: what the nodes answered, and the deaths in between, which count as later.

    `deaths`: by node and pid.
    """
    evidence = []
    for number in sorted({*nodes, *(node for node, _ in deaths)}):
        told = {pid: death for (node, pid), death in deaths.items() if node == number}
        # A node whose ranks were done before anybody asked has told of their ends alone.
        node = nodes.get(number) or NodeEvidence(number, hosts.get(number, ""), at, Phase.ENDED)
        ranks = [_latest(found, told.pop(found.pid, None)) for found in node.ranks]
        # Another process has taken the place of one that died before.
        seen = {rank.rank for rank in ranks}
        gone = {death.rank: death for death in told.values() if death.rank not in seen}
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


def _latest(found: RankEvidence, told: Optional[RankEvidence]) -> RankEvidence:
    if told is None or (not found.alive and len(found.raised) >= len(told.raised)):
        return found
    return told
