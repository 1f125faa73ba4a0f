"""What the nodes have told of their ranks: the last evidence of each, and the ends told in between."""

from __future__ import annotations

import time
from typing import Optional

from ddplaunch.agent.contract import Beat, JobEvidence, JobPlan, Lost, NodeEvidence, RankEvidence
from ddplaunch.agent.hub.rounds import Clocks, Round, job_evidence


class Testimony:
    """All times in it are on the hub's clock."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._clocks = Clocks()
        self._known: dict[int, NodeEvidence] = {}  # the last evidence of each node
        self._deaths: dict[int, tuple[int, RankEvidence]] = {}  # rank -> its node, and what it died of
        self._replaced: set[tuple[int, int]] = set()  # node and pid of workers before the last restart

    def beat(self, beat: Beat) -> None:
        self._clocks.hear(beat.node, beat.at, time.time())

    def evidence(self, evidence: NodeEvidence) -> NodeEvidence:
        """Returns it with its times on our clock."""
        evidence = self._clocks.node(evidence)
        self._known[evidence.node] = evidence
        return evidence

    def death(self, node: int, rank: RankEvidence) -> RankEvidence:
        """Returns it with its times on our clock."""
        rank = self._clocks.rank(node, rank)
        self._deaths[rank.rank] = (node, rank)
        return rank

    def is_past(self, node: int, rank: RankEvidence) -> bool:
        """Whether it is of a worker that was replaced by a restart."""
        return (node, rank.pid) in self._replaced

    def restart(self) -> None:
        """The workers known so far are other processes now."""
        self._replaced |= {(node, rank.pid) for node, rank in self._deaths.values()}
        self._replaced |= {(node, rank.pid) for node, told in self._known.items() for rank in told.ranks}
        self._deaths.clear()
        self._known.clear()

    def whole(
        self, why: str, lost: list[Lost], hosts: dict[int, str], done: Optional[Round] = None
    ) -> JobEvidence:
        """Of a round, or of all that was told so far. What a silent node told in an earlier round is past."""
        late = set() if done is None else done.wanted - done.got.keys()
        known = {node: evidence for node, evidence in self._known.items() if node not in late}
        silent = sorted({*(each.node for each in lost), *late})
        return job_evidence(self._plan, why, time.time(), known, silent, self._deaths, hosts, lost)
