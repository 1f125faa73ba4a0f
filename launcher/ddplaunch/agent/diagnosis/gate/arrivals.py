"""Rules about nodes that do not come: they do not reach the hub, never came, or went away.

The hub also asks here, by `ended_early` and its neighbours, about nodes that pass the gate and start no
ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import CheckResult, JobPlan, Status, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.gate import failed_paths, hub_unreached
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.platforms import Platform
from ddplaunch.agent.platforms.scheduler_log import Ended
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import say

_ASK_SCHEDULER = "ask the scheduler about it: is it pending, pulling its image, or down?"


def unreached_hub(view: GateView) -> Iterator[Verdict]:
    """Yield the reasons of nodes that do not reach the hub. Where no node reaches it, node 0 is at fault."""
    by_itself = ("node-missing", "container-unusable")
    alone = any(each.code in by_itself for each in view.unreached.values())
    all_others = not alone and len(view.unreached) > 1 and len(view.unreached) == view.plan.nodes - 1
    for who, verdict in hub_unreached.by_cause(view.unreached):
        yield replace(verdict, nodes=[0]) if all_others and len(who) == len(view.unreached) else verdict


def missing_nodes(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on nodes that never came, or came and went away."""
    if view.stalled:
        yield Verdict.of(
            "mtu-black-hole",
            say(
                view.nodes(view.stalled),
                " -> node 0: small messages pass, a check-in of a few kB never arrives",
            ),
            "gate",
            nodes=view.stalled,
            facts=["packets larger than the path's MTU vanish, and no ICMP message comes back to say so"],
            hint=failed_paths.MTU_HINT,
        )
    unnamed = any(each.check == "service" and each.status == Status.FAIL for each in _of_zero(view))
    if view.missing and not unnamed:  # else another verdict says why no node finds node 0
        never = [node for node in view.missing if node not in view.vanished]
        if never:
            what = say(view.nodes(never), f" never came: waited {view.waited:.0f} s")
        elif set(view.missing) <= set(view.stopped):
            were = phrases.one_or(view.missing, "was", "were")
            what = say(view.nodes(view.missing), f" {were} told to stop, and the other nodes were not")
        else:
            what = say(view.nodes(view.missing), " checked in and then went away")
        others = [node for node in view.check_ins if node not in view.missing]
        here = view.nodes(others) if others else "nobody"
        hint = platforms.named(view.plan.platform).hint("missing", _ASK_SCHEDULER)
        patience = "`--gate-timeout`" if view.plan.gate.joined else "`gate.timeout` in the job file"
        yield Verdict.of(
            "node-missing",
            say(what, "; ", here, f" {'is' if len(others) < 2 else 'are'} here"),
            "gate",
            nodes=view.missing,
            facts=[
                f"{view.node(node)} had checked in and "
                f"{'was told to stop' if node in view.stopped else 'went away'}"
                for node in view.vanished
            ]
            + [f"the hub refused {peer}, which does not know the job's key" for peer in view.refused]
            + parted_by_id(view.plan),
            hint=f"{hint} {patience} says how long the others wait",
        )


def parted_by_id(plan: JobPlan) -> list[str]:
    """Return a fact on torchrun's id, if nodes with another one look for another job's hub."""
    found = plan.gate.rdzv_id
    if found is None:
        return []
    return [f"--rdzv-id is {found} here: where no scheduler names the job, nodes meet only under the same"]


def _of_zero(view: GateView) -> list[CheckResult]:
    return view.check_ins[0].checks if 0 in view.check_ins else []


# --- nodes whose part of the job ended, or never began, before the agent ran there


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
_ASK = "ask the scheduler about that node: a prolog, its daemon or its disk may hang there"


def ended_early(
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
    return Verdict.of(
        "launch-failed" if (of or len(gone)) == len(names) else code,
        say(subjects.node(first.node, names), f" {what}{more}"),
        "launch" if when == RANKS else "gate",
        nodes=[each.node for each in gone],
        facts=[*ends, *known][:_FACTS],
        hint=hint,
    )


def awaited_ranks(nodes: Sequence[int], names: Sequence[str], platform: Platform, seconds: float) -> Verdict:
    """Return the verdict on nodes that have started no rank `seconds` after the others did."""
    has = phrases.one_or(nodes, "has", "have")
    return Verdict.of(
        "node-missing",
        say(
            subjects.nodes(nodes, names),
            f" {has} passed the gate, and {has} started no rank in the {seconds:.0f} s since the others did",
        ),
        "launch",
        nodes=list(nodes),
        confidence=sure.NO_RANKS_STARTED,
        hint=platform.hint("unstarted", _ASK),
    )


def none_started(platform: Platform, seconds: float) -> Verdict:
    """Return the verdict where no node has started its ranks in `seconds`: no single node is the cause."""
    return Verdict.of(
        "launch-failed",
        f"all nodes have passed the gate, and none has started its ranks in the {seconds:.0f} s since",
        "launch",
        confidence=sure.NO_RANKS_STARTED,
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
