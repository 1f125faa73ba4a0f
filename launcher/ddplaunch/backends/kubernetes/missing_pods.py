"""Explains why a job has no pods: its queue, a quota, the cluster's policies. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.pods import PodProblem

_REJECTIONS = (
    (
        r'violates PodSecurity "(restricted)(?::[^"]*)?": (.*)',
        "the namespace enforces Pod Security {}: {}",
        "set `kubernetes.restricted: true`; `kubectl get namespace --show-labels` shows what it enforces",
    ),
    (
        r'violates PodSecurity "([\w-]+)(?::[^"]*)?": (.*)',
        "the namespace enforces Pod Security {}: {}",
        "remove what the namespace forbids; `kubectl get namespace --show-labels` shows what it enforces",
    ),
    (
        r"exceeded quota: ([^,]+), (.*)",
        "the namespace's quota {} is used up: {}",
        "`kubectl describe resourcequota` shows it; ask for less, or end other jobs",
    ),
    (
        r'admission webhook "([^"]+)" denied the request:? ?(.*)',
        "admission webhook {}: {}",
        "`kubernetes.pod_template` can add what the webhook requires",
    ),
    (
        r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)",
        "admission policy {}: {}",
        "`kubernetes.pod_template` can add what the policy requires",
    ),
    (
        r"serviceaccount \"?([\w.-]+)\"? not found",
        "there is no service account {}",
        "`kubectl get serviceaccounts` lists them; see `kubernetes.service_account`",
    ),
    (
        r"no PriorityClass with name ([\w.-]+)",
        "there is no PriorityClass {}",
        "`kubectl get priorityclasses` lists them; see `kubernetes.priority_class`",
    ),
)
"""Pattern of the Job controller's message, why the pod was rejected, and a hint."""


def failed_create(events: Sequence[Json]) -> PodProblem | None:
    """Return why the Job controller could not create the pods; only events show that."""
    messages = [event.get("message") for event in events if event.get("reason") == "FailedCreate"]
    return _failed_create(objects.line(messages[-1])) if messages else None


def _failed_create(message: str) -> PodProblem:
    for pattern, why, hint in _REJECTIONS:
        if match := re.search(pattern, message):
            return PodProblem("node-missing", f"its pod was rejected: {why.format(*match.groups())}", hint)
    why = message.removeprefix("Error creating: ")
    return PodProblem(
        "node-missing", f"its pod cannot be created: {why}", "`kubectl describe job` shows the events"
    )


def suspended(job: Json, workload: Json | None) -> tuple[str, str]:
    """Return why a suspended job does not start, and a hint. `workload`: Kueue's object for it."""
    queue = objects.labels(job).get(objects.QUEUE, "")
    if not queue:
        command = (
            f"`kubectl patch {str(job['kind']).lower()} {objects.name(job)} --type merge "
            """-p '{"spec":{"suspend":false}}'` resumes it"""
        )
        return "it is suspended", command
    if workload is None:
        priority = objects.labels(job).get(objects.QUEUE_PRIORITY)
        asks = f"is there a WorkloadPriorityClass {priority}, and does" if priority else "does"
        return (
            f"it waits for queue {queue}, and Kueue has not seen it yet",
            f"{asks} Kueue manage this namespace? `kubectl get workloads` lists what it has seen",
        )
    conditions = {each.get("type"): each for each in objects.status(workload).get("conditions") or []}
    evicted, admitted = conditions.get("Evicted"), conditions.get("QuotaReserved")
    text = f"it waits in queue {queue}"
    if evicted is not None and evicted.get("status") == "True":
        text = f"it was evicted and waits in queue {queue} again ({_evicted(evicted)})"
    if admitted is not None and admitted.get("status") != "True":
        text += f": {objects.line(admitted.get('message'))}"
        if admitted.get("reason") == "Inadmissible":
            return text, "`kubectl get localqueues` lists the queues; see `kubernetes.queue`"
        if re.search(r"requested level|TopologyAwareScheduling", text):
            return text, "`kubectl get topologies` lists the levels; see `kubernetes.topology`"
    return text, "`kubectl get workloads` shows which jobs run; it starts when there is room"


def _evicted(condition: Json) -> str:
    why = objects.line(condition.get("message"))
    return f"{condition.get('reason')}: {why}" if why else str(condition.get("reason"))
