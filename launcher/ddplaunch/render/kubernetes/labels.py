"""Labels and annotations by which the objects of a job are known, and its pods are found."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from ddplaunch import __version__
from ddplaunch.agent.contract import codec
from ddplaunch.plan.kubernetes import KubernetesPlan
from ddplaunch.plan.plan import Plan


def job_labels(plan: Plan) -> dict[str, str]:
    """Return the labels of every object; the user's own override ours."""
    name = plan.job.job
    return {
        "app.kubernetes.io/name": plan.family or name,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "training",
        "app.kubernetes.io/part-of": "ddplaunch",
        "app.kubernetes.io/managed-by": "ddplaunch",
        "app.kubernetes.io/version": re.sub(r"[^-.\w]", "_", __version__, flags=re.ASCII),
        **plan.settings(KubernetesPlan).options.labels,
    }


def job_annotations(plan: Plan) -> dict[str, str]:
    """Return the annotations of every object: what made it, and from which plan."""
    digest = hashlib.sha256(plan_text(plan).encode()).hexdigest()
    sweep = {"ddplaunch/sweep": json.dumps(plan.sweep, ensure_ascii=False)} if plan.sweep else {}
    return {"ddplaunch/version": __version__, "ddplaunch/spec": digest, **sweep}


def pod_selector(plan: Plan) -> dict[str, str]:
    """Labels that the pods of this job have and no others. The Job's controller sets them."""
    if plan.settings(KubernetesPlan).options.jobset:
        return {"jobset.sigs.k8s.io/jobset-name": plan.job.job}
    return {"batch.kubernetes.io/job-name": plan.job.job}


def plan_text(plan: Plan) -> str:
    """Return `plan.json`: its digest is in every object, so the same plan has always been the same bytes."""
    text = json.dumps(_numbers(codec.dump(plan.job)), indent=2, sort_keys=True, ensure_ascii=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _numbers(data: Any) -> Any:
    """Whole numbers without the `.0` that only Python writes."""
    if isinstance(data, dict):
        return {key: _numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data
