"""The last evidence of each rank, and the exits reported since."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import (
    Beat,
    JobEvidence,
    JobPlan,
    Lost,
    NodeEvidence,
    Phase,
    RankEvidence,
    RendezvousSettings,
    codec,
)
from ddplaunch.agent.hub.evidence_rounds import Clocks, EvidenceRound, job_evidence
from ddplaunch.agent.transport.protocol import Body


class EvidenceStore:
    """Evidence as it comes in. All times in it are on the hub's clock."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._clocks = Clocks()
        self._known: dict[int, NodeEvidence] = {}  # the last evidence of each node
        self._deaths: dict[tuple[int, int], RankEvidence] = {}  # by node and pid
        self._ended: set[tuple[int, int]] = set()  # node and pid
        self._replaced: set[tuple[int, int]] = set()  # node and pid of workers before the last restart

    def clock(self, node: int, at: float) -> None:
        """The node's clock, as it said just now."""
        self._clocks.hear(node, at, time.time())

    def beat(self, node: int, beat: Beat) -> None:
        """Raises ContractError where a node tells of another, or of a phase that there is not."""
        if beat.node != node or beat.phase not in Phase.ORDER:
            raise codec.ContractError(f"node {node} tells of node {beat.node} in phase {beat.phase[:20]!r}")
        self.clock(node, beat.at)

    def evidence(self, node: int, body: Body) -> NodeEvidence:
        """Take in a node's evidence as it was sent. Returns it with its times on our clock.

        Raises ContractError where it is none, or another node's.
        """
        told = codec.load(NodeEvidence, body.get("evidence"))
        if told.node != node:
            raise codec.ContractError(f"node {node} sends the evidence of node {told.node}")
        evidence = self._clocks.node(told)
        self._known[evidence.node] = evidence
        return evidence

    def death(self, node: int, rank: RankEvidence) -> RankEvidence:
        """Returns it with its times on our clock."""
        rank = self._clocks.rank(node, rank)
        self._deaths[node, rank.pid] = rank
        self._ended.add((node, rank.pid))
        return rank

    def rendezvous(self, node: int, rank: RankEvidence) -> None:
        """Take in a rank that has just called init_process_group, before any evidence was asked for."""
        evidence = self._known.get(node) or NodeEvidence(node, "", time.time(), Phase.INIT)
        others = [each for each in evidence.ranks if each.pid != rank.pid]
        self._known[node] = replace(evidence, ranks=[*others, self._clocks.rank(node, rank)])

    def is_known(self, node: int, rank: RankEvidence) -> bool:
        """Whether the end of this very process was told before: a node that joins again says all again."""
        return (node, rank.pid) in self._ended

    def is_past(self, node: int, rank: RankEvidence) -> bool:
        """Whether it is of a worker that was replaced by a restart."""
        return (node, rank.pid) in self._replaced

    def restart(self) -> None:
        """The workers known so far are other processes now."""
        self._replaced |= self._deaths.keys()
        self._replaced |= {(node, rank.pid) for node, told in self._known.items() for rank in told.ranks}
        self._deaths.clear()
        self._known.clear()

    def whole(
        self,
        why: str,
        lost: list[Lost],
        hosts: dict[int, str],
        done: Optional[EvidenceRound] = None,
        agreed: Optional[RendezvousSettings] = None,
    ) -> JobEvidence:
        """Return the job's evidence: of round `done`, or without one the last of each node."""
        late = set() if done is None else done.wanted - done.got.keys()
        known = {node: evidence for node, evidence in self._known.items() if node not in late}
        silent = sorted({*(each.node for each in lost), *late})
        evidence = job_evidence(self._plan, why, time.time(), known, silent, self._deaths, hosts, lost)
        if agreed is None:
            return evidence
        return replace(evidence, master_addr=agreed.master_addr, master_port=agreed.master_port)
