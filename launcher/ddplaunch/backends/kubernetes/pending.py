"""Explains why a whole job lacks pods: its queue, a quota, the cluster's rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.pods import PodProblem

_SECURITY = re.compile(r'violates PodSecurity "([\w-]+)(?::[^"]*)?": (.*)')
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request:? ?(.*)')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)")
_QUOTA = re.compile(r"exceeded quota: ([^,]+), (.*)")


def failed_create(events: Sequence[Json]) -> PodProblem | None:
    """Return why the controller could not make the job's pods. Nothing but events tells of it."""
    for event in reversed(events):
        if event.get("reason") == "FailedCreate":
            return _failed_create(" ".join(str(event.get("message") or "").split()))
    return None


def _failed_create(said: str) -> PodProblem:
    if match := _SECURITY.search(said):
        level, why = match[1], match[2]
        hint = (
            "set `kubernetes.restricted: true`"
            if level == "restricted"
            else "leave out what the namespace forbids"
        )
        return PodProblem(
            "node-missing",
            f"its pod may not be made: the namespace enforces Pod Security {level}: {why}",
            f"{hint}; `kubectl get namespace --show-labels` shows what it enforces",
        )
    if match := _QUOTA.search(said):
        return PodProblem(
            "node-missing",
            f"its pod may not be made: the namespace's quota {match[1]} is used up: {match[2]}",
            "`kubectl describe resourcequota` shows it; ask for less, or end other jobs",
        )
    if match := _WEBHOOK.search(said):
        return PodProblem(
            "node-missing",
            f"its pod may not be made: the cluster's webhook {match[1]} says: {match[2]}",
            "the webhook is the cluster's; `kubernetes.pod_template` can add what it wants",
        )
    if match := _POLICY.search(said):
        return PodProblem(
            "node-missing",
            f"its pod may not be made: the cluster's policy {match[1]} says: {match[2]}",
            "the policy is the cluster's; `kubernetes.pod_template` can add what it wants",
        )
    if match := re.search(r"serviceaccount \"?([\w.-]+)\"? not found", said):
        return PodProblem(
            "node-missing",
            f"its pod may not be made: there is no service account {match[1]}",
            "`kubectl get serviceaccounts` lists them; see `kubernetes.service_account`",
        )
    if match := re.search(r"no PriorityClass with name ([\w.-]+)", said):
        return PodProblem(
            "node-missing",
            f"its pod may not be made: there is no PriorityClass {match[1]}",
            "`kubectl get priorityclasses` lists them; see `kubernetes.priority_class`",
        )
    why = said.removeprefix("Error creating: ")
    return PodProblem(
        "node-missing", f"its pod cannot be made: {why}", "`kubectl describe job` shows the events"
    )


def suspended(job: Json, workload: Json | None) -> tuple[str, str]:
    """Return why it is not let in, and a hint. `workload`: Kueue's own record of it."""
    queue = objects.labels(job).get(objects.QUEUE, "")
    if not queue:
        command = (
            f"`kubectl patch {str(job['kind']).lower()} {objects.name(job)} --type merge "
            """-p '{"spec":{"suspend":false}}'` lets it go on"""
        )
        return "it is suspended", command
    if workload is None:
        return (
            f"it waits for queue {queue}, and Kueue has not seen it yet",
            "does Kueue look at this namespace? `kubectl get workloads` lists what it has seen",
        )
    conditions = {each.get("type"): each for each in objects.status(workload).get("conditions") or []}
    evicted, admitted = conditions.get("Evicted"), conditions.get("QuotaReserved")
    text = f"it waits in queue {queue}"
    if evicted is not None and evicted.get("status") == "True":
        text = f"it was taken out to wait in queue {queue} again ({_evicted(evicted)})"
    if admitted is not None and admitted.get("status") != "True":
        text += f": {_first_line(admitted.get('message'))}"
        if admitted.get("reason") == "Inadmissible":
            return text, "`kubectl get localqueues` lists the queues; see `kubernetes.queue`"
    return text, "`kubectl get workloads` shows who is in; it starts by itself when there is room"


def _evicted(told: Json) -> str:
    why = _first_line(told.get("message"))
    return f"{told.get('reason')}: {why}" if why else str(told.get("reason"))


def _first_line(text: object) -> str:
    return " ".join(str(text or "").split())
