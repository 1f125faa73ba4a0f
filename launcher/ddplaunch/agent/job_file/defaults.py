"""Lists what the job file's plain data does not say of its model. Generated from that: run `make docs`."""

from __future__ import annotations

from typing import Any

UNITS: dict[str, tuple[str, str]] = {
    "resources.memory": ("quantity", "a quantity such as 16Gi or 500M, or a number of bytes"),
    "resources.shm": ("quantity", "a quantity such as 16Gi or 500M, or a number of bytes"),
    "rendezvous.timeout": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "gate.timeout": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "watchdog.notice_after": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "watchdog.kill_after": ("duration", "a duration such as 10s, 2m or 1h30m, or auto or never"),
    "kubernetes.active_deadline": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "kubernetes.ttl": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "slurm.time": ("slurm_time", 'a time such as 90m, 12h, "1:30:00" or "2-00:00:00"'),
    "local.time": ("duration", "a duration such as 10s, 2m or 1h30m"),
    "signal.before": ("duration", "a duration such as 10s, 2m or 1h30m"),
}
"""Keys whose texts are numbers of a unit: its parser in `units`, and what a message says is wanted."""

RENDEZVOUS: dict[str, Any] = {"backend": "static", "timeout": 600.0, "max_restarts": 0}
"""The section of a job file that says nothing of it."""
