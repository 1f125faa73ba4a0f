"""The verdict for nodes whose part of the job ended, or never began, before the agent ran there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.platforms import Platform
from ddplaunch.agent.platforms.scheduler_log import Ended
from ddplaunch.agent.system import phrases, subjects

GATE = "never came to the gate"
LEFT = "came to the gate, and ended before it was through"
RANKS = "passed the gate and never started its ranks"
_CONTAINER = "error: container: "
"""Prefix of what the batch script says of a container: "exit code 255", or what its runtime lacks."""
_RUNTIME = re.compile(r"(?:FATAL|ERROR) *: +(?:While checking image: )?(.+)")
_CONTAINER_HINTS = {
    "is on PATH": "no-runtime",
    "executable file": "no-python",
    ": not found": "no-runtime",
    "oci.conf": "no-oci",
    "Task launch": "no-image",
    "open image": "no-image",
    "mount source": "no-mount",
    "user namespace": "no-namespace",
}
"""Parts of a runtime's messages, and the platform's names of their hints."""
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
        f"{phrases.node(each.node, names)}: {phrases.clipped(line)}"
        for each in gone
        for line in each.last_lines
    ]
    ends = [f"{each.by} says of {subjects.node(each.node, names)}: {each.how}" for each in gone]
    code, what = "node-missing", f"{when}: {_reason(first)}"
    hint = platform.hint("ended" if first.launched else "unlaunched", _ASK)
    container = _container(first)
    if container:
        code, what = "container-unusable", f"cannot start the job's container: {phrases.clipped(container)}"
        about = next((name for words, name in _CONTAINER_HINTS.items() if words in container), "container")
        hint = platform.hint(about, "start the container by hand on that node")
    return Verdict(
        "launch-failed" if (of or len(gone)) == len(names) else code,
        f"{subjects.node(first.node, names)} {what}{more}",
        "launch" if when == RANKS else "gate",
        nodes=[each.node for each in gone],
        facts=[*ends, *known][:_FACTS],
        hint=hint,
    )


def awaited(nodes: Sequence[int], names: Sequence[str], platform: Platform, seconds: float) -> Verdict:
    """Return the verdict on nodes that have started no rank `seconds` after the others did."""
    has = phrases.one_or(nodes, "has", "have")
    return Verdict(
        "node-missing",
        f"{subjects.nodes(nodes, names)} {has} passed the gate, and {has} started no rank in the "
        f"{seconds:.0f} s since the others did",
        "launch",
        nodes=list(nodes),
        confidence=0.9,
        hint=platform.hint("unstarted", _ASK),
    )


def none(platform: Platform, seconds: float) -> Verdict:
    """Return the verdict where no node has started its ranks in `seconds`: no single node is the cause."""
    return Verdict(
        "launch-failed",
        f"all nodes have passed the gate, and none has started its ranks in the {seconds:.0f} s since",
        "launch",
        confidence=0.9,
        hint=platform.hint("none-started", "see whether the scheduler answered all that time"),
    )


def _container(task: Ended) -> str:
    """Return why the task's container did not start; "" where that is not what has ended it."""
    own = next((line for line in task.last_lines if line.startswith(_CONTAINER)), "")
    if own and not own.startswith(f"{_CONTAINER}exit code "):
        return own[len(_CONTAINER) :]
    matches = filter(None, map(_RUNTIME.match, task.last_lines if own else ()))
    return next((match[1] for match in matches), "")


def _reason(task: Ended) -> str:
    """Return what its daemon, or its own error, says; the last line may be a hint or an echo."""
    plain = [line for line in task.last_lines if line.strip()]
    telling = next((line for line in plain if line.startswith(("error: ", "TaskProlog "))), None)
    said = telling or (plain[-1] if plain else "")
    how = f"{task.by}: {task.how}"
    return f"{phrases.clipped(said)} ({how})" if said else how
