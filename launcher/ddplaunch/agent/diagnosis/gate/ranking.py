"""Orders several causes: which comes first, which follows from another, which hides another. Pure.

First come causes that make every attempt fail: the first verdict's exit code is the job's, and may forbid
another attempt. Among those, identities, names and arrivals come first, without which nothing else is known;
then settings of all nodes, what each node found about itself, and at last the paths between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ddplaunch.agent.contract import CheckResult, Exit, Status, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import node_names
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.diagnosis.gate.kinds import Kind
from ddplaunch.agent.system import phrases

_NAMES = frozenset({"dns-not-found", "dns-unanswered", "dns-disagrees"})
"""Of names, whichever check or rule found them."""

Found = tuple[Kind, list[Verdict]]
"""The verdicts of one rule, in its own order."""


def order(view: GateView, found: Iterable[Found]) -> list[Verdict]:
    """Return each cause once, the first cause first, with what cannot be known because of it."""
    ranked = [
        # Of ways between nodes their rule knows best which is the worst.
        (Kind.NAME if verdict.code in _NAMES else kind, place if kind == Kind.PATH else 0, verdict)
        for kind, verdicts in found
        for place, verdict in enumerate(verdicts)
    ]
    causes = [each for each in ranked if not _is_consequence(view, each[2], [v for *_, v in ranked])]
    causes.sort(key=lambda each: (_may_pass_elsewhere(each[2]), *each[:2], *_content(each[2])))
    return _with_hidden(view, [(kind, verdict) for kind, _, verdict in causes])


def mesh_alone(view: GateView) -> GateView:
    """Return the view without paths that fail because a node is gone or mute, or a name leads nowhere."""
    mute = {node for node, each in view.check_ins.items() if any(map(_leaves_no_thread, each.checks))}
    gone = {*view.missing, *view.vanished, *mute}
    mesh = [
        result
        for result in view.mesh
        if not {result.node, result.peer} & gone and not node_names.leads_nowhere(view, result)
    ]
    library = [result for result in view.library if not {result.node, result.peer} & gone]
    return replace(view, mesh=mesh, library=library)


def _leaves_no_thread(result: CheckResult) -> bool:
    """Whether the node may be unable to answer others, or to ask them: both need threads."""
    return result.code == "threads-too-few" and result.status == Status.FAIL


def _may_pass_elsewhere(verdict: Verdict) -> bool:
    return CATALOGUE[verdict.code].exit_code != Exit.MISCONFIGURED


def _content(verdict: Verdict) -> tuple[str, list[int], str]:
    return verdict.code, verdict.nodes, verdict.sentence


def _is_consequence(view: GateView, verdict: Verdict, all_of_them: list[Verdict]) -> bool:
    """Whether another cause explains all of it."""
    others: dict[str, set[int]] = {}
    for each in all_of_them:
        others.setdefault(each.code, set()).update(each.nodes)
    if verdict.code == "version-differs":  # a node without torch has none of its versions
        return set(verdict.nodes) <= others.get("image-lacks", set())
    if verdict.code == "node-missing" and view.missing and not view.vanished:
        if "rank-duplicate" in others:  # who claims a place that is taken leaves its own empty
            return len(verdict.nodes) <= len(view.strays)
        if "world-size-differs" in others:  # of a smaller job there are no more
            return min(verdict.nodes) >= min(c.nodes for c in (*view.check_ins.values(), *view.strays))
    return False


def _with_hidden(view: GateView, causes: list[tuple[Kind, Verdict]]) -> list[Verdict]:
    absent = [node for node in range(view.plan.nodes) if node not in view.check_ins]
    first = next((v for kind, v in causes if kind == Kind.ARRIVAL), causes[0][1] if causes else None)
    return [
        replace(verdict, facts=[*verdict.facts, *_hidden(view, verdict, absent if verdict is first else [])])
        for _, verdict in causes
    ]


def _hidden(view: GateView, verdict: Verdict, absent: list[int]) -> list[str]:
    """`absent`: the nodes that are not here, if this verdict is the one to say so."""
    if absent:
        ways = ", and the paths between the nodes" if view.checks("mesh") else ""
        found = phrases.one_or(absent, "is here: what it finds", "are here: what they find")
        return [f"not known before {view.nodes(absent)} {found} at home{ways}"]
    if verdict.code == "port-in-use" and view.plan.nodes > 1:
        return ["not known before it is free: whether the other nodes reach that port"]
    unversed = [node for node in verdict.nodes if not _facts(view, node).get("versions")]
    if verdict.code == "image-lacks" and unversed and view.checks("versions"):
        return [f"not known before it is there: which versions {view.nodes(unversed)} would run with"]
    misled = [node for node in verdict.nodes if node_names.is_misled(view, node)]
    if misled and verdict.code in (*_NAMES, "master-is-loopback"):
        return [f"not known before the name leads there: whether {view.nodes(misled)} can reach the master"]
    return []


def _facts(view: GateView, node: int) -> dict[str, Any]:
    return view.check_ins[node].facts if node in view.check_ins else {}
