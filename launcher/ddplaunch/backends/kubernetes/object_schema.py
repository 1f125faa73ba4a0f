"""The form of the API's objects, for the fields that this package reads. Pure.

An API server keeps to it; a proxy on the way may not. A field of another form is dropped, as if the server
had not sent it.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_COUNT: Final = range(100_001)
"""Nodes of a job: Kubernetes itself allows no more pods to run at once."""
_WHOLE: Final = range(-(2**63), 2**63)
_TEXTS: Final = {str: str}  # any key

_CONDITIONS: Final = [{"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}]
_STATE: Final = {
    "waiting": {"reason": str, "message": str},
    "running": {"startedAt": str},
    "terminated": {"exitCode": _WHOLE, "reason": str, "message": str, "startedAt": str, "finishedAt": str},
}
_CONTAINERS: Final = [
    {"name": str, "image": str, "started": bool, "restartCount": _WHOLE, "state": _STATE, "lastState": _STATE}
]
_METADATA: Final = {
    "name": str,
    "namespace": str,
    "uid": str,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "creationTimestamp": str,
    "deletionTimestamp": str,
}
_OBJECT: Final = {
    "apiVersion": str,
    "kind": str,
    "metadata": _METADATA,
    "spec": {
        "completions": _COUNT,
        "suspend": bool,
        "activeDeadlineSeconds": _WHOLE,
        "nodeName": str,
        "failurePolicy": {"maxRestarts": _WHOLE},
        "replicatedJobs": [{"template": {"metadata": _METADATA, "spec": {"completions": _COUNT}}}],
    },
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "restarts": _COUNT,
        "conditions": _CONDITIONS,
        "initContainerStatuses": _CONTAINERS,
        "containerStatuses": _CONTAINERS,
    },
    # Of an event:
    "reason": str,
    "message": str,
    "involvedObject": {"kind": str, "name": str, "uid": str},
    "series": {"lastObservedTime": str},
    "firstTimestamp": str,
    "lastTimestamp": str,
    "eventTime": str,
}


def formed(value: object) -> Json:
    """Return the object without what has another form; empty where `value` is no object at all."""
    kept: Json = _formed(value, _OBJECT) or {}
    return kept


def listed(value: object) -> list[Json]:
    """Return the `items` of a list, each as `formed` returns it."""
    items = value.get("items") if isinstance(value, dict) else None
    return [formed(each) for each in items] if isinstance(items, list) else []


def _formed(value: Any, form: Any) -> Any:
    """Return what of `value` has the given form; None where nothing of it has."""
    if isinstance(form, dict):
        return _mapping(value, form) if isinstance(value, dict) else None
    if isinstance(form, list):
        items = value if isinstance(value, list) else []
        return [kept for each in items if (kept := _formed(each, form[0])) is not None]
    if isinstance(form, range):
        return value if type(value) is int and value in form else None
    return value if type(value) is form else None


def _mapping(mapping: Json, form: dict[Any, Any]) -> Json:
    """Return the mapping without the values that have not the form in which they are read."""
    inner = {key: form.get(str) or form.get(key) for key in mapping}
    kept = {key: _formed(mapping[key], inner[key]) if inner[key] else mapping[key] for key in mapping}
    return {key: value for key, value in kept.items() if value is not None}
