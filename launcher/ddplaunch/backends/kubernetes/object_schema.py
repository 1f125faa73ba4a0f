"""The form of the API's objects, as far as anything here reads them. Pure.

An API server keeps to it. A proxy on the way, or whatever else answers there, may not: what has another form
is left out, as if the server had not mentioned it.
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
    "terminated": {
        "exitCode": _WHOLE,
        "reason": str,
        "message": str,
        "startedAt": str,
        "finishedAt": str,
    },
}
_CONTAINERS: Final = [
    {
        "name": str,
        "image": str,
        "started": bool,
        "restartCount": _WHOLE,
        "state": _STATE,
        "lastState": _STATE,
    }
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
        "replicatedJobs": [{"template": {"metadata": _METADATA, "spec": {"completions": _COUNT}}}],
    },
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
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


def formed(found: object) -> Json:
    """The object without what has another form; empty where it is no object at all."""
    told: Json = _formed(found, _OBJECT) or {}
    return told


def listed(found: object) -> list[Json]:
    """The `items` of a list, likewise."""
    items = found.get("items") if isinstance(found, dict) else None
    return [formed(each) for each in items] if isinstance(items, list) else []


def _formed(found: Any, form: Any) -> Any:
    """None: it has another form."""
    if isinstance(form, dict):
        return _mapping(found, form) if isinstance(found, dict) else None
    if isinstance(form, list):
        items = found if isinstance(found, list) else []
        return [told for each in items if (told := _formed(each, form[0])) is not None]
    if isinstance(form, range):
        return found if type(found) is int and found in form else None
    return found if type(found) is form else None


def _mapping(found: Json, form: dict[Any, Any]) -> Json:
    """Return the mapping without the values that have not the form in which they are read."""
    told = {}
    for key, value in found.items():
        inner = form.get(str) or form.get(key)
        kept = value if inner is None else _formed(value, inner)
        if kept is not None:
            told[key] = kept
    return told
