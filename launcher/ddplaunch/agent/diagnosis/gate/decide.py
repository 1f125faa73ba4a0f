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
    clocks,
    environment,
    failed_checks,
    failed_paths,
    hardware,
    interfaces,
    ip_families,
    node_names,
    subnets,
)
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.diagnosis.gate.kinds import Kind
from ddplaunch.agent.diagnosis.gate.ranking import mesh_alone, order
from ddplaunch.agent.diagnosis.rule_runner import Complain
from ddplaunch.agent.diagnosis.rules import declared_rules
from ddplaunch.agent.text import mentions

T = TypeVar("T")


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


RULES: tuple[tuple[Kind, Callable[[GateView], Iterable[Verdict]]], ...] = tuple(declared_rules("gate"))
"""The rules of all modules here, and what each speaks of. `order` orders their verdicts."""

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
