"""Makes the job that `doctor` runs on Kubernetes: under a name of its own, and deleted soon after its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

_TTL = 600.0
"""Seconds for which a check-up that has ended stays in the cluster."""


def job(spec: JobSpec | None) -> JobSpec:
    """Return `spec` under a name of its own. Raises UsageError without a job file: pods need an image."""
    if spec is None:
        raise UsageError(
            "a check-up on Kubernetes needs a job file: it runs in pods, and they need an image",
            hint="`ddplaunch init` writes one; set `image:` in it, then "
            "`ddplaunch doctor job.yaml --to kubernetes`",
        )
    options = spec.kubernetes.model_copy(update={"ttl": spec.kubernetes.ttl or _TTL})
    return spec.model_copy(update={"name": f"doctor-{os.urandom(3).hex()}", "kubernetes": options})
