"""Names and paths of the API's objects, and functions that read them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

MANAGER = "ddplaunch"
"""Field manager of the objects that ddplaunch creates."""
OURS = {"app.kubernetes.io/part-of": "ddplaunch", "app.kubernetes.io/component": "training"}
"""Labels of all objects of a job, including one from Helm, which writes its own name into `managed-by`."""
FAMILY = "app.kubernetes.io/name"
"""The label that all submissions of a job file have in common: its name, without a number at the end."""
RELEASE, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
"""Annotations of objects that Helm has installed."""
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_UID = "batch.kubernetes.io/controller-uid"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
QUEUE = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
WORKLOAD_JOB = "kueue.x-k8s.io/job-uid"

JOBS = "batch/v1"
JOBSETS = "jobset.x-k8s.io/v1alpha2"
KUEUE = "kueue.x-k8s.io/v1beta1"
POLICIES = "networking.k8s.io/v1"

PYTHON, HUB, GATE, TRAINER = "python", "hub", "gate", "trainer"
"""Containers of every pod."""

KEY = "-key"
"""The end of the name of a job's Secret."""

_PLURALS = {
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "Service": "services",
    "NetworkPolicy": "networkpolicies",
    "Job": "jobs",
    "JobSet": "jobsets",
}
OWNERS = ("Job", "JobSet")
"""Kinds of the object that owns all the others of a job."""


def plural(kind: str) -> str:
    """Return the kind's plural, in the form used in an API path and in a Role."""
    return _PLURALS[kind]


def group(api_version: str) -> str:
    """Return the API group; "" for the core."""
    return api_version.rpartition("/")[0]


def collection(api_version: str, resource: str, namespace: str) -> str:
    """Return the API path of all objects of this resource in the namespace."""
    base = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    return f"{base}/namespaces/{namespace}/{resource}"


def path(document: Mapping[str, Any], namespace: str) -> str:
    """Return the API path of an object in a rendered file."""
    name = document["metadata"]["name"]
    return f"{collection(document['apiVersion'], plural(document['kind']), namespace)}/{name}"


def items(found: Mapping[str, Any]) -> list[Json]:
    """Return the objects of a list."""
    return found.get("items") or []


def metadata(found: Mapping[str, Any]) -> Json:
    """Return the object's metadata; empty if it has none."""
    return found.get("metadata") or {}


def name(found: Mapping[str, Any]) -> str:
    """Return `metadata.name`."""
    return str(metadata(found).get("name", ""))


def uid(found: Mapping[str, Any]) -> str:
    """Return `metadata.uid`."""
    return str(metadata(found).get("uid", ""))


def labels(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the object's labels; empty if it has none."""
    return metadata(found).get("labels") or {}


def status(found: Mapping[str, Any]) -> Json:
    """Return the object's status; empty if it has none."""
    return found.get("status") or {}


def spec(found: Mapping[str, Any]) -> Json:
    """Return the object's spec; empty if it has none."""
    return found.get("spec") or {}


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether it comes from a rendered file, or from the chart."""
    return labels(found).items() >= OURS.items()


def is_being_deleted(found: Mapping[str, Any]) -> bool:
    """Whether it is being deleted."""
    return bool(metadata(found).get("deletionTimestamp"))


def node(pod: Mapping[str, Any]) -> int | None:
    """Return a pod's node number; None if it has none."""
    return _number(labels(pod).get(INDEX, ""))


def attempt(found: Mapping[str, Any]) -> int:
    """Return the attempt of the JobSet to which the object belongs; a Job has one attempt, 0."""
    return _number(labels(found).get(ATTEMPT, "")) or 0


def _number(label: str) -> int | None:
    return int(label) if re.fullmatch("[0-9]{1,9}", label) else None


def condition(found: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of this type if it is true."""
    for each in status(found).get("conditions") or []:
        if each.get("type") == kind and each.get("status") == "True":
            return dict(each)
    return None


def containers(pod: Mapping[str, Any]) -> dict[str, Json]:
    """Return the statuses of all containers by name, including init containers."""
    pod_status = status(pod)
    listed: Iterable[Json] = [
        *(pod_status.get("initContainerStatuses") or []),
        *(pod_status.get("containerStatuses") or []),
    ]
    return {each.get("name", ""): each for each in listed}


def state(pod: Mapping[str, Any], container: str, kind: str) -> Json | None:
    """Return the state of a container if it is `kind` (waiting, running or terminated); None: it is not."""
    return ((containers(pod).get(container) or {}).get("state") or {}).get(kind)


def at(text: str | None) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None for any other text."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def created(found: Mapping[str, Any]) -> float:
    """Return when it was created, in seconds since the epoch; 0.0 if that is not known."""
    return at(metadata(found).get("creationTimestamp")) or 0.0


def job(owner: Json | None) -> Json:
    """Return the Job: the owner itself, or what its JobSet makes of it; {} if that has made none."""
    if not owner or owner.get("kind") != "JobSet":
        return owner or {}
    jobs = spec(owner).get("replicatedJobs") or [{}]
    return jobs[0].get("template") or {}


def is_elastic(job: Json | None) -> bool:
    """Whether it starts with only some of its nodes: then it is complete as soon as node 0 is."""
    return bool(spec(job or {}).get("successPolicy"))


def sweep(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the job's own values in a sweep, as text by key."""
    try:
        values = json.loads((metadata(found).get("annotations") or {}).get("ddplaunch/sweep", "{}"))
    except (TypeError, ValueError):
        return {}
    return {key: f"{value}" for key, value in values.items()} if isinstance(values, dict) else {}


def line(text: object) -> str:
    """Return a message from the API on one line."""
    return " ".join(str(text or "").split())
