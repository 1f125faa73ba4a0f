"""What a node can say of its own end, where no hub answers."""

from __future__ import annotations

import signal
import time

from ddplaunch.agent.contract import Exit, JobEvidence, JobPlan, NodeEvidence, Verdict
from ddplaunch.agent.supervise.crew import Crew

HUB_SPEAKS = 45.0
"""Seconds to wait for the hub's verdict after the launch command has failed: it hears all nodes, slow ones
too, and asks again when they tell of victims alone."""


def own_code(crew: Crew, oom_kills: int) -> int:
    """The Exit code by this node's own facts; the launch command has ended."""
    assert crew.launch_exit is not None
    if crew.launch_exit.code == 0:
        return Exit.OK
    killed = any(rank.exit and rank.exit.signal == signal.SIGKILL for rank in crew.ranks.values())
    return Exit.OUT_OF_MEMORY if killed and oom_kills else Exit.WORKER_FAILED


def judge_alone(plan: JobPlan, code: int, evidence: NodeEvidence) -> tuple[int, list[Verdict]]:
    """Exit code and verdicts by the evidence of this node alone; `code` where they decide nothing."""
    from ddplaunch.agent.verdicts import catalogue, decide

    world = plan.nodes * plan.nproc_per_node if plan.nproc_per_node else None
    job = JobEvidence(
        plan.job,
        plan.nodes,
        world,
        "death",
        time.time(),
        [evidence],
        notice_after=plan.watchdog.notice_after,
        names=plan.names,
    )
    verdicts = decide.judge(job)
    if verdicts and verdicts[0].code != "unknown":
        code = catalogue.CATALOGUE[verdicts[0].code].exit_code
    return code, verdicts
