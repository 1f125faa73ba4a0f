"""Makes the job that `doctor` runs on Kubernetes: under a name of its own, and deleted soon after its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ddplaunch.errors import UsageError

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

_TTL = 600.0
"""Seconds for which a check-up that has ended stays in the cluster."""


def job(spec: JobSpec) -> JobSpec:
    """Return `spec` under a name of its own. Raises UsageError without image and job file: pods need one."""
    if not (spec.image or spec.job_file):
        raise UsageError(
            "a check-up on Kubernetes runs in pods, and they need an image",
            hint="set `image:` in a job file (`ddplaunch init` writes one), then "
            "`ddplaunch doctor job.yaml --to kubernetes`; or in a profile, and name that by --profile",
        )
    options = spec.kubernetes.model_copy(update={"ttl": spec.kubernetes.ttl or _TTL})
    return spec.model_copy(update={"name": f"doctor-{os.urandom(3).hex()}", "kubernetes": options})
