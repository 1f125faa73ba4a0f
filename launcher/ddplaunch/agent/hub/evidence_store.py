"""The last evidence of each rank, and the exits reported since."""

from __future__ import annotations

import time
from collections.abc import Container
from dataclasses import replace
from typing import Optional

from ddplaunch.agent.contract import (
    Beat,
    JobEvidence,
    Lost,
    NodeEvidence,
    Phase,
    RankEvidence,
    codec,
)
from ddplaunch.agent.hub.evidence_rounds import Clocks, EvidenceRound, job_evidence
from ddplaunch.agent.hub.job_record import JobRecord


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

    def clock(self, node: int, at: float) -> None:
        """Note the node's clock: `at`, sent just now, in seconds since the epoch."""
        self._clocks.add(node, at, time.time())

    def beat(self, node: int, beat: Beat) -> None:
        """Note the clock of a heartbeat. Raises ContractError where it is another node's."""
        if beat.node != node:
            raise codec.ContractError(f"node {node} sends the heartbeat of node {beat.node}")
        self.clock(node, beat.at)

    def evidence(self, node: int, sent: NodeEvidence) -> NodeEvidence:
        """Keep a node's evidence; return it on our clock. Raises ContractError where it is another node's."""
        if sent.node != node:
            raise codec.ContractError(f"node {node} sends the evidence of node {sent.node}")
        evidence = self._clocks.node(sent)
        shared = replace(evidence, ranks=[self._shared(rank) for rank in evidence.ranks])
        self._known[evidence.node] = shared
        return shared

    def _shared(self, rank: RankEvidence) -> RankEvidence:
        """Return it with one list of members for each group, which all its ranks share: it may be long."""
        known = self._members
        groups = [
            replace(each, ranks=known.setdefault(tuple(each.ranks), each.ranks)) for each in rank.groups
        ]
        return replace(rank, groups=groups)

    def death(self, node: int, rank: RankEvidence) -> RankEvidence:
        """Keep a rank's end. Returns it with its times on the hub's clock."""
        rank = self._clocks.rank(node, rank)
        self._deaths[node, rank.pid] = rank
        self._ended.add((node, rank.pid))
        return rank

    def rendezvous(self, node: int, rank: RankEvidence) -> None:
        """Keep a rank that has just called init_process_group, before any round of evidence."""
        evidence = self._known.get(node) or NodeEvidence(node, "", time.time(), Phase.INIT)
        others = [each for each in evidence.ranks if each.pid != rank.pid]
        self._known[node] = replace(evidence, ranks=[*others, self._clocks.rank(node, rank)])

    def is_known(self, node: int, rank: RankEvidence) -> bool:
        """Whether the end of this process was reported before: a node that rejoins repeats it."""
        return (node, rank.pid) in self._ended

    def is_past(self, node: int, rank: RankEvidence) -> bool:
        """Whether the rank's process is of an earlier attempt of the launch command."""
        return (node, rank.pid) in self._replaced

    def set_aside(self, node: int, present: Container[int]) -> None:
        """Forget the node's ranks, but for the `present` pids: the launch command has started others."""
        evidence = self._known.pop(node, None)
        known = [] if evidence is None else evidence.ranks
        gone = {pid for pid in (*(rank.pid for rank in known), *self._dead(node)) if pid not in present}
        self._replaced |= {(node, pid) for pid in gone}
        for pid in gone:
            self._deaths.pop((node, pid), None)
        left = [rank for rank in known if rank.pid not in gone]
        if evidence is not None and left:
            self._known[node] = replace(evidence, ranks=left)

    def _dead(self, node: int) -> list[int]:
        return [pid for other, pid in self._deaths if other == node]

    def whole(
        self,
        why: str,
        lost: list[Lost],
        done: Optional[EvidenceRound] = None,
        behind: Container[int] = (),
    ) -> JobEvidence:
        """Return the job's evidence: of round `done`, or without one the last of each node.

        `behind`: nodes whose ended ranks are of an earlier attempt of the launch commands.
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
