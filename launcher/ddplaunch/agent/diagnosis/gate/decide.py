"""Asks the rules of the gate about the check-ins of all nodes and the paths between them.

A rule returns nothing where facts are missing. `ranking.order` puts the verdicts in their order.

`complain` gets the failure of a rule: see `rule_runner`. It keeps no job from its start, and the
other rules are asked all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable, TypeVar

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis import rule_runner
from ddplaunch.agent.diagnosis.gate import (
    arrivals,
    clocks,
    environment,
    failed_checks,
    failed_paths,
    hardware,
    identity,
    interfaces,
    ip_families,
    node_names,
    subnets,
    versions,
)
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.diagnosis.gate.kinds import Kind
from ddplaunch.agent.diagnosis.gate.ranking import mesh_alone, order
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.text import mentions

T = TypeVar("T")
Rule = Callable[[GateView], Iterable[Verdict]]

RULES: tuple[tuple[Kind, Rule], ...] = (
    # Who is who comes first: while two claim one place, or nodes count differently, what is said of a node
    # may be another's, and a node may be missing for that alone.
    (Kind.IDENTITY, identity.duplicate_rank),
    (Kind.IDENTITY, identity.differing_sizes),
    # A name that leads elsewhere is why a node does not arrive, or finds no port open.
    (Kind.NAME, node_names.master_is_loopback),
    (Kind.NAME, node_names.master_is_not_node_zero),
    (Kind.NAME, ip_families.silent_names),
    # Of a node that is not here nothing else is known, nor can anybody reach it.
    (Kind.ARRIVAL, arrivals.unreached_hub),
    (Kind.ARRIVAL, arrivals.missing_nodes),
    # One file mends a setting for all nodes; what a single node lacks takes somebody to go there.
    (Kind.SETTING, environment.differing),
    (Kind.SETTING, interfaces.missing),
    (Kind.SETTING, versions.differing_versions),
    (Kind.NODE, failed_checks.failed_checks),
    (Kind.NODE, hardware.differing),
    (Kind.NODE, clocks.differing),
    # Paths come last: all that is above may be what closes them.
    (Kind.PATH, ip_families.apart),
    (Kind.PATH, ip_families.chosen),
    (Kind.PATH, interfaces.wrong),
    (Kind.PATH, failed_paths.failed_paths),
)
"""All rules, and what each speaks of. Every one is asked. `order` then puts first what makes every attempt
fail, and orders the rest by kind; of one kind by code, so that the same facts give the same order."""

NOTES: tuple[Callable[[GateView], list[str]], ...] = (
    clocks.notes,
    environment.notes,
    node_names.notes,
    ip_families.notes,
    interfaces.notes,
    hardware.notes,
    subnets.notes,
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
    return [mentions.filled(note) for rule in NOTES for note in _run(rule, view, complain)]


def _run(rule: Callable[[GateView], Iterable[T]], view: GateView, complain: Complain) -> list[T]:
    return rule_runner.run(rule, view, complain, "gate")
