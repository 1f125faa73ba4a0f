"""Pods of a job whose end is decided."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

ENDED = 1_800_000_000.0
"""When the hub had its last word."""


def at(seconds: float) -> str:
    """As Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def pod(number: int, ready: bool = True, **outcomes: Any) -> dict[str, Any]:
    """A pod whose containers are in these states."""
    labels = {"batch.kubernetes.io/job-completion-index": str(number)}
    failed = "terminated" in outcomes.get("trainer", {})
    return {
        "metadata": {"name": f"d-{number}-x", "uid": str(number), "labels": labels},
        "spec": {"nodeName": f"w{number + 1}"},
        "status": {
            "phase": "Failed" if failed else "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": name, "state": state} for name, state in outcomes.items()],
        },
    }


RUNS = {"running": {"startedAt": at(ENDED - 60)}}
