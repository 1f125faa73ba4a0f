"""The verdict for nodes whose part of the job ended, or never began, before the agent ran there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.platforms import Platform
from ddplaunch.agent.platforms.step_tasks import Ended
from ddplaunch.agent.system import phrases

GATE = "never came to the gate"
LEFT = "came to the gate, and ended before it was through"
RANKS = "passed the gate and never started its ranks"
_FACTS = 8
_ASK = "ask the scheduler for that node: a prolog, its daemon or its disk may hang there"


def ended(
    gone: Sequence[Ended], names: Sequence[str], platform: Platform, when: str, of: Optional[int] = None
) -> Verdict:
    """`gone` in node order, not empty. `when`: GATE, LEFT or RANKS. `of`: of so many that ended in all.

    Where all nodes have ended so, the job is at fault and no node; else it may work elsewhere.
    """
    first = gone[0]
    more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
    known = [
        f"{phrases.node(each.node, names)}: {phrases.clipped(line)}" for each in gone for line in each.said
    ]
    return Verdict(
        "launch-failed" if (of or len(gone)) == len(names) else "node-missing",
        f"{phrases.node(first.node, names)} {when}: {_reason(first)}{more}",
        "launch" if when == RANKS else "gate",
        nodes=[each.node for each in gone],
        facts=[*(f"{each.by} says of {phrases.node(each.node, names)}: {each.how}" for each in gone), *known][
            :_FACTS
        ],
        hint=platform.hint("ended" if first.launched else "unlaunched", _ASK),
    )


def awaited(nodes: Sequence[int], names: Sequence[str], platform: Platform, seconds: float) -> Verdict:
    """Nothing is heard of their ranks since so many seconds, while those of other nodes have come."""
    has = phrases.one_or(nodes, "has", "have")
    return Verdict(
        "node-missing",
        f"{phrases.nodes(nodes, names)} {has} passed the gate, and {has} started no rank in the "
        f"{seconds:.0f} s since the others did",
        "launch",
        nodes=list(nodes),
        confidence=0.9,
        hint=platform.hint("unstarted", _ASK),
    )


def none(platform: Platform, seconds: float) -> Verdict:
    """No node has started its ranks in so many seconds: that is of no node's making."""
    return Verdict(
        "launch-failed",
        f"all nodes have passed the gate, and none has started its ranks in the {seconds:.0f} s since",
        "launch",
        confidence=0.9,
        hint=platform.hint("none-started", "see whether the scheduler answered all that time"),
    )


def _reason(task: Ended) -> str:
    """Return what its daemon, or its own error, says; the last line may be a hint or an echo."""
    plain = [line for line in task.said if line.strip()]
    telling = next((line for line in plain if line.startswith(("error: ", "TaskProlog "))), None)
    said = telling or (plain[-1] if plain else "")
    how = f"{task.by}: {task.how}"
    return f"{phrases.clipped(said)} ({how})" if said else how
