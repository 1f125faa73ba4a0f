"""Asks the API server what the user may do, so that a job is created whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.api_errors import Permission, RefusedError, lacking

_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MADE = ("get", "create", "patch", "delete")
_ASKED_AT_ONCE = 8


def needed(documents: Iterable[Mapping[str, Any]]) -> list[Permission]:
    """Return the permissions that are needed to create, watch and delete these objects."""
    found = [
        Permission(verb, objects.plural(each["kind"]), objects.group(each["apiVersion"]))
        for each in documents
        for verb in (*_MADE, *(["list"] if each["kind"] in objects.OWNERS else []))
    ]
    return [*found, Permission("list", "pods"), Permission("get", "pods/log")]


def check(
    api: Api, documents: Iterable[Mapping[str, Any]], namespace: str, spare: Collection[str]
) -> set[str]:
    """Return which of the kinds `spare`, which a job can do without, the user may not create.

    Raises ClusterError, which names every other permission that is missing.
    """
    wanted = needed(documents)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        allowed = list(pool.map(lambda permission: _is_allowed(api, permission, namespace), wanted))
    refused = [permission for permission, yes in zip(wanted, allowed, strict=True) if not yes]
    kinds = {objects.plural(kind): kind for kind in spare}
    missing = [permission for permission in refused if permission.resource not in kinds]
    if missing:
        raise lacking(missing, namespace)
    return {kinds[permission.resource] for permission in refused}


def _is_allowed(api: Api, permission: Permission, namespace: str) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = api.request("POST", _REVIEW, "ask what you may do", body=review)
    except RefusedError as error:
        if error.status == 403:
            return True  # reviews are not allowed either: then the request itself fails
        raise
    return bool(objects.status(answer.body).get("allowed"))
