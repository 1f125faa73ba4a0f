"""One node's own stall detection and verdict, for when no hub is left.

A node sees its own ranks only. What it says is marked as one node's view; of a job of several nodes it blames
a rank only for what can be seen at that rank, whatever the others do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import Optional

from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    Exit,
    Files,
    JobEvidence,
    JobPlan,
    NodeEvidence,
    Verdict,
    codec,
)
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.diagnosis.run import decide
from ddplaunch.agent.hub.evidence_rounds import job_evidence
from ddplaunch.agent.hub.stall_detector import StallDetector
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.system import phrases

HUB_RETURNS = 30.0
"""Seconds without a hub after which a node watches its ranks by itself; never more than `kill_after`."""
_SEEN_ALONE = frozenset({"rank-stopped", "io-stuck", "gil-held", "lock-deadlock"})
"""Verdicts on a hang that need no other node's evidence."""


class WithoutHub:
    def __init__(self, plan: JobPlan, place: LaunchContext, node: int, attempt: int) -> None:
        self._plan = plan
        self._place = place
        self._node = node
        self._attempt = attempt
        self._watch: Optional[StallDetector] = None

    def must_end(self, beat: Beat, hub_away: float) -> bool:
        """Whether nothing has moved here for `kill_after`, and no hub is there to say so.

        `hub_away`: for how many seconds; 0 while there is one.
        """
        kill_after = self._plan.watchdog.kill_after
        if kill_after is None or hub_away < min(HUB_RETURNS, kill_after):
            self._watch = None
            return False
        now = time.monotonic()
        self._watch = self._watch or StallDetector(self._plan.watchdog, 1)
        self._watch.hear(beat, now)
        return self._watch.decide(now) == "deadline"

    def of_hang(self, evidence: NodeEvidence) -> Optional[tuple[int, list[Verdict]]]:
        """Exit code and verdicts; None where the evidence shows that something moves after all."""
        job = self._job("deadline", evidence)
        if not decide.nothing_moves(job):
            self._watch = None
            return None
        verdicts = decide.judge(job)
        if self._plan.nodes > 1:
            verdicts = [each for each in verdicts if each.code in _SEEN_ALONE] or [_unknown(job)]
        return self._kept(Exit.HANG, verdicts, job)

    def of_end(self, code: int, evidence: NodeEvidence) -> tuple[int, list[Verdict]]:
        """Return exit code and verdicts for a failed launch command; `code` where they decide nothing."""
        job = self._job("death", evidence)
        return self._kept(code, decide.judge(job), job)

    def _job(self, why: str, evidence: NodeEvidence) -> JobEvidence:
        return job_evidence(self._plan, why, time.time(), {self._node: evidence}, [], {}, {}, [])

    def _kept(self, code: int, verdicts: list[Verdict], job: JobEvidence) -> tuple[int, list[Verdict]]:
        """Write code and verdicts into the node's folder, where somebody may look, and return them."""
        plan = self._plan
        if plan.nodes > 1:
            here = phrases.node(self._node, plan.names)
            view = f"this is the view of {here} alone: the hub did not answer"
            verdicts = [dataclasses.replace(each, facts=[*each.facts, view]) for each in verdicts]
        if verdicts and verdicts[0].code != "unknown":
            code = catalogue.exit_code(verdicts[0])
        bundle = Bundle(
            plan.job,
            self._attempt,
            plan.nodes,
            plan.nproc_per_node,
            started=job.at,
            written=time.time(),
            agreed=self._place.agreed(),
            evidence=job,
            verdicts=verdicts,
        )
        with contextlib.suppress(OSError):  # it is printed, too
            codec.write(os.path.join(self._place.node, Files.OWN), bundle)
        return code, verdicts


def _unknown(job: JobEvidence) -> Verdict:
    ranks = sorted(rank.rank for node in job.evidence for rank in node.ranks if rank.alive)
    return Verdict(
        "unknown",
        f"nothing moves at {phrases.ranks(ranks)}, and the hub, which knows the other nodes, does not answer",
        "run",
        victims=ranks,
        confidence=0.0,
        facts=["missing: the evidence of the other nodes"],
    )
