"""Job files as a Helm chart hands them to its pods: JSON with all defaults, and units as people write."""

from __future__ import annotations

import json
from typing import Any

JOB: dict[str, Any] = {
    "apiVersion": "ddplaunch/v1",
    "name": "digits",
    "nodes": 2,
    "nproc_per_node": 4,
    "command": ["train.py", "--epochs", "3"],
    "launch": "torchrun",
    "python": "python3",
    "image": "trainer",
    "source": [],
    "env": {},
    "secrets": {},
    "notify": [],
    "metrics": {},
    "volumes": [],
    "resources": {},
    "rendezvous": {"backend": "static", "timeout": "10m", "max_restarts": 0},
    "gate": {"enabled": True, "skip": [], "smoke_test": False},
    "watchdog": {"notice_after": "10s", "kill_after": "10m", "privileges": "none"},
    "retries": 0,
    "retry_hangs": False,
    "resume": {"args": []},
    "kubernetes": {
        "jobset": False,
        "node_selector": {},
        "tolerations": [],
        "labels": {},
        "annotations": {},
        "image_pull_secrets": [],
        "host_network": False,
        "network_policy": "ports",
        "networks": [],
        "gpu_resource": "nvidia.com/gpu",
        "restricted": False,
        "pod_template": {},
    },
    "slurm": {"extra": [], "container": {"runtime": "none", "mounts": []}},
    "local": {},
}


def text(**changes: Any) -> str:
    """The job file, with `changes` to its keys; those of a section are merged into it."""
    merged = {
        key: {**JOB[key], **value} if isinstance(value, dict) and isinstance(JOB.get(key), dict) else value
        for key, value in changes.items()
    }
    return json.dumps({**JOB, **merged})
