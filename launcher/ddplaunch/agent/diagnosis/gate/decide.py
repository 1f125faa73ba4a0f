"""Asks the rules of the gate about all nodes' check-ins and the paths between them, and orders what they say.

The hub asks it, each time that it knows more; nothing here does I/O or reads a clock. `complain` gets the
failure of a rule: see `rule_runner`. It keeps no job from its start, and the other rules are asked all the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Callable, TypeVar

from ddplaunch.agent.contract import CheckResult, Exit, Status, Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import (
    arrivals,
    differences,
    failed_checks,
    failed_paths,
    interfaces,
    names,
    torchruns,
)
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.saying import Sayable, say, spelled

T = TypeVar("T")
Rule = Callable[[GateView], Iterable[Verdict]]


class Kind(IntEnum):
    """The subject of a rule, in the order in which faults have to be fixed."""

    IDENTITY = 0
    NAME = 1
    ARRIVAL = 2
    SETTING = 3
    NODE = 4
    PATH = 5


RULES: tuple[tuple[Kind, Rule], ...] = (
    # Who is who comes first: while two claim one place, or nodes count differently, what is said of a node
    # may be another's, and a node may be missing for that alone.
    (Kind.IDENTITY, differences.duplicate_rank),
    (Kind.IDENTITY, differences.differing_sizes),
    # A name that resolves to a wrong address is why a node does not arrive, or finds no port open.
    (Kind.NAME, names.master_is_loopback),
    (Kind.NAME, names.master_is_not_node_zero),
    (Kind.NAME, names.silent_names),
    # Of a node that is not here nothing else is known, nor can anybody reach it.
    (Kind.ARRIVAL, arrivals.unreached_hub),
    (Kind.ARRIVAL, arrivals.missing_nodes),
    # One file fixes a setting for all nodes; what a single node lacks takes somebody to go there.
    (Kind.SETTING, differences.differing_settings),
    (Kind.SETTING, torchruns.never_meet),
    (Kind.SETTING, interfaces.missing),
    (Kind.SETTING, differences.differing_versions),
    (Kind.NODE, failed_checks.failed_checks),
    (Kind.NODE, differences.differing_hardware),
    (Kind.NODE, differences.differing_clocks),
    # Paths come last: all that is above may be what closes them.
    (Kind.PATH, names.apart),
    (Kind.PATH, names.chosen),
    (Kind.PATH, interfaces.wrong),
    (Kind.PATH, failed_paths.failed_paths),
)
"""All rules, and what each speaks of. Every one is asked. `order` then puts first what makes every attempt
fail, and orders the rest by kind; of one kind by code, so that the same facts give the same order."""

NOTES: tuple[Callable[[GateView], Sequence[Sayable]], ...] = (
    differences.clock_notes,
    differences.setting_notes,
    torchruns.notes,
    names.name_notes,
    names.family_notes,
    interfaces.notes,
    differences.hardware_notes,
    failed_paths.subnet_notes,
    failed_checks.notes,
    lambda view: failed_paths.notes(view.mesh, view.plan.names),
)


def judge(view: GateView, complain: Complain = None) -> list[Verdict]:
    """Return all verdicts against the job, first things first."""
    (alone,) = _run(lambda view: [mesh_alone(view)], view, complain) or [view]
    found = [(kind, _run(rule, alone, complain)) for kind, rule in RULES]
    every = [verdict for _, verdicts in found for verdict in verdicts]
    return _run(lambda view: order(view, found), alone, complain) or every


def notes(view: GateView, complain: Complain = None) -> list[str]:
    """Return what a person should know although the job can run."""
    return [spelled(say(note)) for rule in NOTES for note in _run(rule, view, complain)]


def _run(rule: Callable[[GateView], Iterable[T]], view: GateView, complain: Complain) -> list[T]:
    return rule_runner.run(rule, view, complain, "gate")


# --- which cause comes first, which follows from another, which hides another
#
# First come causes that make every attempt fail: the first verdict's exit code is the job's, and may forbid
# another attempt. Among those, identities, names and arrivals come first, without which nothing else is
# known; then settings of all nodes, what each node found about itself, and at last the paths between them.


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
        if not {result.node, result.peer} & gone and not names.leads_nowhere(view, result)
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
        verdict.with_facts(_hidden(view, verdict, absent if verdict is first else []))
        for _, verdict in causes
    ]


def _hidden(view: GateView, verdict: Verdict, absent: list[int]) -> list[str]:
    """`absent`: the nodes that are not here, if this verdict is the one to say so."""
    if absent:
        ways = ", and the paths between the nodes" if view.checks("mesh") else ""
        own = phrases.one_or(absent, "is here: its", "are here: their")
        return [f"not checked until {view.nodes(absent)} {own} own checks{ways}"]
    if verdict.code == "port-in-use" and view.plan.nodes > 1:
        return ["not checked until the port is free: whether the other nodes reach it"]
    unversed = [node for node in verdict.nodes if not _facts(view, node).get("versions")]
    if verdict.code == "image-lacks" and unversed and view.checks("versions"):
        return [f"not checked until it is installed: the versions on {view.nodes(unversed)}"]
    misled = [node for node in verdict.nodes if names.is_misled(view, node)]
    if misled and verdict.code in (*_NAMES, "master-is-loopback"):
        return [f"not checked until the name leads there: whether {view.nodes(misled)} can reach the master"]
    return []


def _facts(view: GateView, node: int) -> dict[str, Any]:
    return view.check_ins[node].facts if node in view.check_ins else {}
