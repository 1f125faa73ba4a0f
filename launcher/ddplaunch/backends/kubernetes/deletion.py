"""Stops a job, takes its evidence, deletes it from the cluster, and waits until it is gone."""

from __future__ import annotations

import threading
import time

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends.kubernetes import evidence, objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.queries import ApiState, Queries
from ddplaunch.errors import ClusterError

GONE = 180.0
"""Seconds until pods are gone: their grace period (90 s), their volumes, a slow machine."""
_PAUSE = 0.5
_PARTS = (
    (objects.POLICIES, "networkpolicies", ""),
    ("v1", "services", ""),
    ("v1", "configmaps", ""),
    ("v1", "secrets", objects.KEY),
)
"""Version, resource, and the suffix that its name has after the job's name."""


def begin(api: Api, owner: Json, namespace: str) -> None:
    """Delete the job with all that it owns, and by name what `kubectl apply` created, which has no owner.

    Raises ClusterError.
    """
    name = objects.name(owner)
    _delete(api, objects.path(owner, namespace), f"delete {owner['kind']} {name}", objects.uid(owner))
    for version, resource, suffix in _PARTS:
        path = f"{objects.collection(version, resource, namespace)}/{name}{suffix}"
        part = _part(api, path)
        if part is not None and not objects.is_being_deleted(part):
            _delete(api, path, f"delete {resource} {name}{suffix}", objects.uid(part))


def parts(api: Api, owner: Json, namespace: str) -> list[str]:
    """Return the objects that `begin` deletes, by kubectl's names. Raises ClusterError."""
    name = objects.name(owner)
    found = [f"{objects.plural(owner['kind'])}/{name}"]
    for version, resource, suffix in _PARTS:
        path = f"{objects.collection(version, resource, namespace)}/{name}{suffix}"
        if _part(api, path) is not None:
            found.append(f"{resource}/{name}{suffix}")
    return [f"{each} in namespace {namespace}" for each in found]


def helm(owner: Json) -> str:
    """Return how to remove the job's Helm release, which Helm still lists; "" if Helm did not install it."""
    annotations = objects.metadata(owner).get("annotations") or {}
    release, namespace = (annotations.get(key, "") for key in (objects.RELEASE, objects.RELEASE_NAMESPACE))
    if not release:
        return ""
    return f"Helm still lists its release: `helm uninstall {release} --namespace {namespace}`"


def wait(api: Api, queries: Queries, owner: Json, namespace: str) -> None:
    """Wait until nothing of the job is left. Raises ClusterError, which names what is left."""
    name = objects.name(owner)
    deadline = time.monotonic() + GONE
    while left := _left(api, queries, owner, namespace):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"kubernetes://{namespace}/{name} was deleted {GONE:.0f} s ago but still exists: "
                f"{', '.join(left[:5])} remain",
                hint="a machine that does not answer keeps its pods: `kubectl get pods -o wide` names it, "
                "and `kubectl delete pod --force` deletes them anyway",
            )
        time.sleep(_PAUSE)


def _left(api: Api, queries: Queries, owner: Json, namespace: str) -> list[str]:
    name = objects.name(owner)
    there = api.find(objects.path(owner, namespace), f"look at {owner['kind']} {name}")
    if there is not None and objects.uid(there) != objects.uid(owner):
        return []  # another job took the name meanwhile
    pods = [f"pod {objects.name(pod)}" for pod in queries.leftover_pods(namespace, name)]
    if there is not None:
        return pods or [f"{owner['kind']} {name}"]
    parts = [
        f"{resource} {name}{suffix}"
        for version, resource, suffix in _PARTS
        if _part(api, f"{objects.collection(version, resource, namespace)}/{name}{suffix}") is not None
    ]
    return pods + parts


def _part(api: Api, path: str) -> Json | None:
    """Return the object if ddplaunch created it; None also if this user may not read it."""
    try:
        found = api.find(path, "look for what belongs to the job")
    except RefusedError as error:
        if error.status == 403:
            return None
        raise
    return found if found is not None and objects.is_ours(found) else None


def _delete(api: Api, path: str, what: str, uid: str) -> None:
    body = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
    try:
        api.request("DELETE", path, what, body=body)
    except RefusedError as error:
        if error.status not in (404, 409):
            raise


STOP = 90.0
"""Seconds for a job to end after its hub was asked to end it: the ranks may write a checkpoint."""
_WHY = "ddplaunch cancel"


def cancel(api: Api, state: ApiState) -> Bundle | None:
    """Stop the job, begin to delete it, and return its hub's bundle; None: the hub left none.

    Whatever would start again is deleted while it stops. Raises ClusterError.
    """
    assert state.owner is not None
    bundle = None if state.comes_back else _stopped(api, state)
    if bundle is None:
        return _bundle_while_deleted(api, state)
    begin(api, state.owner, state.namespace)
    return bundle


def _stopped(api: Api, state: ApiState) -> Bundle | None:
    """Stop the job through its hub, and return the hub's bundle; None: the hub cannot be reached, or left
    none.
    """
    if not evidence.stop(api, state, _WHY):
        return None
    deadline = time.monotonic() + STOP
    while time.monotonic() < deadline:
        found = evidence.left(api, state)
        if found is not None:
            return found
        time.sleep(0.5)
    return None


def _bundle_while_deleted(api: Api, state: ApiState) -> Bundle | None:
    """Delete the job, and return the bundle that its hub prints on SIGTERM, before its pod is gone."""
    assert state.owner is not None
    bundles: list[Bundle] = []
    reader = threading.Thread(target=_read_bundle, args=(api, state, bundles), daemon=True)
    reader.start()
    if state.comes_back:
        evidence.stop(api, state, _WHY)
    begin(api, state.owner, state.namespace)
    reader.join(GONE)
    return bundles[-1] if bundles else None


def _read_bundle(api: Api, state: ApiState, bundles: list[Bundle]) -> None:
    found = evidence.left(api, state, follow=True)
    if found is not None:
        bundles.append(found)
