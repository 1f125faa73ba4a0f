"""One node's own stall detection and verdict, for when no hub is left.

A node sees only its own ranks. Its verdict is marked as one node's view: in a job of several nodes it blames
a rank only for a state that needs no other rank to explain it. Most jobs keep their hub, so the rules, which
are a third of what a supervisor would have to load, are imported only when they are needed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    Exit,
    Files,
    JobEvidence,
    JobPlan,
    NodeEvidence,
    Verdict,
    bundle_file,
)
from ddplaunch.agent.diagnosis import catalogue
from ddplaunch.agent.hub.evidence import job_evidence
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, say

if TYPE_CHECKING:
    from ddplaunch.agent.hub.stalls import StallDetector

HUB_RETURNS = 30.0
"""Seconds without a hub after which a node detects stalls by itself; never more than `kill_after`."""
_SEEN_ALONE = frozenset({"rank-stopped", "io-stuck", "gil-held", "lock-deadlock"})
"""Verdicts on a hang that need no other node's evidence."""


class WithoutHub:
    """Judges this node alone."""

    def __init__(self, plan: JobPlan, place: LaunchContext, node: int, attempt: int) -> None:
        self._plan = plan
        self._place = place
        self._node = node
        self._attempt = attempt
        self._stalls: Optional[StallDetector] = None

    def begin_attempt(self) -> None:
        """Start again, because the launch command has started new ranks."""
        self._stalls = None

    def must_end(self, beat: Beat, hub_away: float) -> bool:
        """Whether no rank here moved for `kill_after` without a hub. `hub_away`: the seconds without it."""
        kill_after = self._plan.watchdog.kill_after
        if kill_after is None or hub_away < min(HUB_RETURNS, kill_after):
            self._stalls = None
            return False
        from ddplaunch.agent.hub.stalls import StallDetector

        now = time.monotonic()
        self._stalls = self._stalls or StallDetector(self._plan.watchdog, {beat.node})
        self._stalls.add(beat, now)
        return self._stalls.decide(now) == "deadline"

    def judge_hang(self, evidence: NodeEvidence) -> Optional[tuple[int, list[Verdict]]]:
        """Return the exit code and the verdicts of a hang; None if the evidence shows movement after all."""
        from ddplaunch.agent.diagnosis.run import decide

        job = self._job("deadline", evidence)
        if not decide.nothing_moves(job):
            self._stalls = None
            return None
        verdicts = decide.judge(job)
        if self._plan.nodes > 1:
            alive = sorted(rank.rank for rank in evidence.ranks if rank.alive)
            unknown = _unknown(say("nothing moves at ", subjects.ranks(alive)), alive)
            verdicts = [each for each in verdicts if each.code in _SEEN_ALONE] or [unknown]
        return self._kept(Exit.HANG, verdicts, job)

    def judge_end(self, code: int, evidence: NodeEvidence) -> tuple[int, list[Verdict]]:
        """Return exit code and verdicts for a failed launch command; `code` itself if no verdict sets one."""
        from ddplaunch.agent.diagnosis.run import decide

        job = self._job("death", evidence)
        verdicts = decide.judge(job)
        if self._plan.nodes > 1 and any(each.code == "launch-failed" for each in verdicts):
            verdicts = [_unknown("the launch command ended")]
        return self._kept(code, verdicts, job)

    def _job(self, why: str, evidence: NodeEvidence) -> JobEvidence:
        return job_evidence(self._plan, why, time.time(), {self._node: evidence}, [], {}, {}, [])

    def _kept(self, code: int, verdicts: list[Verdict], job: JobEvidence) -> tuple[int, list[Verdict]]:
        """Write the bundle to the node's folder, and return code and verdicts."""
        plan = self._plan
        if plan.nodes > 1:
            here = phrases.node(self._node, plan.names)
            view = f"this is the view of {here} alone: the hub did not answer"
            verdicts = [each.with_facts([view]) for each in verdicts]
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
        with contextlib.suppress(OSError):  # it is printed as well
            bundle_file.write(os.path.join(self._place.node, Files.OWN), bundle)
        return code, verdicts


def _unknown(what: Sayable, victims: Sequence[int] = ()) -> Verdict:
    """Return the verdict on an end whose cause may be on another node."""
    return Verdict.of(
        "unknown",
        say(what, ", and the hub, which knows the other nodes, does not answer"),
        "run",
        victims=list(victims),
        confidence=0.0,
        facts=["missing: the evidence of the other nodes"],
    )
