"""What nodes check in with, for the rules of the gate."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import CheckIn, CheckResult, JobPlan, Verdict

PLAN = JobPlan("trial", 3, 2, ["{python}"], ["train.py"], master_addr="n0")


TORCH = {"python": "3.11.7", "torch": "2.15.0", "nccl": "2.30.7"}


def check_in(node: int, checks: tuple[CheckResult, ...] = (), **changes: Any) -> CheckIn:
    """A healthy node on a machine of its own."""
    facts = {
        "names": {"own": f"n{node}", "addresses": {f"n{node}": [f"10.0.0.{node}"], "n0": ["10.0.0.0"]}},
        "versions": TORCH,
        "hub": {"received": 1000.0, "round_trip": 0.1},
        **changes.pop("facts", {}),
    }
    plain: dict[str, Any] = {
        "node": node,
        "host": f"n{node}",
        "nodes": 3,
        "nproc_per_node": 2,
        "address": f"10.0.0.{node}",
        "ports": {"responder": 40000},
        "at": 1000.0,
        "machine": f"machine {node}",
        "netns": "net:[1]",
        "pid": 10 + node,
    }
    return CheckIn(**{**plain, **changes}, facts=facts, checks=list(checks))


def only(verdicts: list[Verdict]) -> Verdict:
    """The single one."""
    (verdict,) = verdicts
    return verdict
