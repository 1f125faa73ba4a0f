"""Pods as an API server lists them."""

from __future__ import annotations

from typing import Any


def pod(name: str, *containers: str, **more: Any) -> dict[str, Any]:
    """A pod that runs, as a list has it."""
    return {
        "metadata": {"name": name, "namespace": "team", **more.pop("metadata", {})},
        "spec": {"containers": [{"name": each} for each in containers or ("main",)], "nodeName": "worker1"},
        "status": {"phase": "Running", **more},
    }


def statuses(**state: Any) -> list[dict[str, Any]]:
    """Of the container."""
    return [{"name": "main", "state": state}]
