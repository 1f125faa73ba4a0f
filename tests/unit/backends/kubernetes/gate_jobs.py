"""Jobs at the gate, as the API server, the hub and the gates' logs tell of them."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.contract import JobStatus, NodeStatus, Phase, PhaseName, Verdict
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.saying import say
from ddplaunch.backends.kubernetes.evidence import GateReport
from ddplaunch.backends.kubernetes.queries import ApiState

DIGITS = [f"digits-{node}" for node in range(4)]
BEGUN = "2026-01-01T00:00:00Z"


def pod(node: int, hub: str = "running", gate: str = "running") -> dict[str, Any]:
    """Return a pod whose containers are in these states; a gate that has ended has failed."""
    states = {"hub": hub, "gate": gate}
    return {
        "metadata": {
            "name": f"digits-{node}-x",
            "labels": {"batch.kubernetes.io/job-completion-index": f"{node}"},
        },
        "spec": {"nodeName": f"worker{node}"},
        "status": {
            "initContainerStatuses": [
                {"name": name, "state": {state: {"startedAt": BEGUN, "exitCode": 20}}}
                for name, state in states.items()
            ]
        },
    }


def seen(*pods: dict[str, Any]) -> ApiState:
    """Return what the API server says of a job of these pods."""
    return ApiState("lab", "digits", {"metadata": {}}, {"spec": {"completions": len(pods)}}, pods)


def status(*phases: PhaseName) -> JobStatus:
    """Return the hub's status of nodes in these phases."""
    nodes = [NodeStatus(number, phase=phase) for number, phase in enumerate(phases)]
    return JobStatus("digits", 0, Phase.GATE, 0.0, nodes, 0.0, 0.0)


def verdict(node: int, code: str = "dns-not-found") -> Verdict:
    """Return a verdict of node `node` about itself."""
    return Verdict.of(
        code, say(subjects.node(node, DIGITS), " cannot resolve x"), "gate", [node], facts=["NXDOMAIN"]
    )


def report(node: int, code: str = "dns-not-found") -> GateReport:
    """Return that verdict as a gate's log has it."""
    return GateReport(5.0 + node, UnreachedReport(node, 4.0, verdict(node, code)))
