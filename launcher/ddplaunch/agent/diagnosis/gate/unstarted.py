"""The verdict for nodes whose part of the job ended, or never began, before the agent ran there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.platforms import pods
from ddplaunch.agent.platforms.slurm_tasks import UNLAUNCHED, Ended
from ddplaunch.agent.system import phrases

GATE = "never came to the gate"
LEFT = "came to the gate, and ended before it was through"
RANKS = "passed the gate and never started its ranks"
_FACTS = 8


def ended(gone: Sequence[Ended], names: Sequence[str], when: str, of: Optional[int] = None) -> Verdict:
    """`gone` in node order, not empty. `when`: GATE, LEFT or RANKS. `of`: of so many that ended in all.

    Where all nodes have ended so, the job is at fault and no node; else it may work elsewhere.
    """
    first = gone[0]
    more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
    known = [
        f"{phrases.node(each.node, names)}: {phrases.clipped(line)}" for each in gone for line in each.said
    ]
    unlaunched = first.how.startswith(UNLAUNCHED)
    return Verdict(
        "launch-failed" if (of or len(gone)) == len(names) else "node-missing",
        f"{phrases.node(first.node, names)} {when}: {_reason(first)}{more}",
        "launch" if when == RANKS else "gate",
        nodes=[each.node for each in gone],
        facts=[*(f"srun says of {phrases.node(each.node, names)}: {each.how}" for each in gone), *known][
            :_FACTS
        ],
        hint="see whether slurmd runs on that node: `scontrol show node NAME`"
        if unlaunched
        else "look at what Slurm runs there before a task (`scontrol show config | grep -i prolog`), and at "
        "room in /tmp; `slurm.exclude` leaves a node out",
    )


def awaited(nodes: Sequence[int], names: Sequence[str], seconds: float) -> Verdict:
    """Nothing is heard of their ranks since so many seconds, while those of other nodes have come."""
    has = phrases.one_or(nodes, "has", "have")
    return Verdict(
        "node-missing",
        f"{phrases.nodes(nodes, names)} {has} passed the gate, and {has} started no rank in the "
        f"{seconds:.0f} s since the others did",
        "launch",
        nodes=list(nodes),
        confidence=0.9,
        hint=pods.HINTS["unstarted"]
        if phrases.are_pods(names)
        else "ask the scheduler for that node: a prolog, its daemon or its disk may hang there",
    )


def none(seconds: float) -> Verdict:
    """No node has started its ranks in so many seconds: that is of no node's making."""
    return Verdict(
        "launch-failed",
        f"all nodes have passed the gate, and none has started its ranks in the {seconds:.0f} s since",
        "launch",
        confidence=0.9,
        hint="see whether the scheduler answered all that time; on Slurm: `scontrol ping`, slurmctld's log",
    )


def _reason(task: Ended) -> str:
    """Return what its daemon, or its own error, says; the last line may be a hint or an echo."""
    plain = [line for line in task.said if line.strip()]
    telling = next((line for line in plain if line.startswith(("error: ", "TaskProlog "))), None)
    said = telling or (plain[-1] if plain else "")
    how = f"srun: {task.how}"
    return f"{phrases.clipped(said)} ({how})" if said else how
