"""Adds a container to a running pod from which its ranks are looked at: it has a Python, and may trace.

Kubernetes calls it ephemeral. None can be taken out of a pod again: it ends after the look, and the spec of
the pod has it as long as there is the pod.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError

PREFIX: Final = "ddplaunch-debug-"
_START: Final = 90.0
"""Seconds for the image to be pulled and the container to run."""
_POLL: Final = 1.0
_COMES: Final = ("", "ContainerCreating", "PodInitializing", "ErrImagePull")
"""Reasons to wait for a container that may come yet: a pull that failed is tried again at once."""
_IDLES: Final = """
import os, sys, time

def namespace(pid):
    try:
        return os.readlink("/proc/%s/ns/mnt" % pid)
    except OSError:
        return ""

first, most = map(float, sys.argv[1:])
own, began, looked = namespace("self"), time.monotonic(), 0
while time.monotonic() - began < most:
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    if own in map(namespace, pids):
        looked = time.monotonic()
    elif time.monotonic() > (looked + 2 if looked else began + first):
        break
    time.sleep(0.5)
"""
"""Ends two seconds after the last look, when its container has no other process.

Its arguments: for how many seconds it waits for the first one, and how many it lasts at most.
"""
_FIRST: Final = _START + 60.0
"""Seconds until a look comes: when the containers of all pods are there."""
_MOST: Final = 300.0
_MERGED: Final = "application/strategic-merge-patch+json"
_OTHERWISE: Final = (
    "without --debug-image, stacks take a python3 in the pod's image and a node whose sysctl "
    "kernel.yama.ptrace_scope is 0; on the node itself, root sees them by `ddplaunch diagnose pid:PID`; "
    "started by `ddplaunch run -- COMMAND`, the job records its calls next time, without any right"
)


class _NotStartedError(Exception):
    """No container can be had in this pod. The text says why."""


class Debugger(NamedTuple):
    """A container that runs in a pod, or why there is none. `is_shared`: another look has made it."""

    name: str
    is_shared: bool = False
    why: str = ""


def started(api: Api, namespace: str, pod: str, target: str, image: str, gone: str = "") -> Debugger:
    """Return a container of this image in the pod, which sees the processes of the container `target`.

    One that is there already is taken, unless it is `gone`. Raises ClusterError where no pod of the namespace
    may have one.
    """
    path = f"{objects.collection('v1', 'pods', namespace)}/{pod}"
    name = ""
    try:
        found = _pod(api, path, pod)
        name = _usable(found, target, image, gone)
        is_shared = bool(name)
        if not is_shared:
            name = f"{PREFIX}{1 + len(objects.spec(found).get('ephemeralContainers') or [])}"
            _add(api, path, namespace, pod, _container(name, target, image))
        _await(api, path, pod, name, image)
    except _NotStartedError as error:
        return Debugger(name, why=str(error))
    return Debugger(name, is_shared)


def _pod(api: Api, path: str, pod: str) -> Json:
    found = api.find(path, f"look at pod {pod}")
    if found is None:
        raise _NotStartedError("it is gone")
    return found


def _usable(pod: Json, target: str, image: str, gone: str) -> str:
    for each in objects.spec(pod).get("ephemeralContainers") or []:
        name = str(each.get("name", ""))
        is_such = each.get("image") == image and each.get("targetContainerName") == target
        if name.startswith(PREFIX) and is_such and name != gone and "terminated" not in _state(pod, name):
            return name
    return ""


def _container(name: str, target: str, image: str) -> Json:
    """Return it as the pod's spec has it.

    For any user but root a capability has no effect. Root without those that are dropped reads no file of the
    ranks' user, /proc/PID/environ among them, unless it has DAC_OVERRIDE.
    """
    return {
        "name": name,
        "image": image,
        "targetContainerName": target,
        "command": ["python3", "-I", "-S", "-c", _IDLES, f"{_FIRST:.0f}", f"{_MOST:.0f}"],
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,  # also where the pod says otherwise
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "SYS_PTRACE"]},
        },
    }


def _add(api: Api, path: str, namespace: str, pod: str, container: Json) -> None:
    body = {"spec": {"ephemeralContainers": [container]}}
    what = f"add a container to pod {pod}"
    try:
        api.request("PATCH", f"{path}/ephemeralcontainers", what, body=body, kind=_MERGED)
    except RefusedError as error:
        if error.status == 403:
            raise _not_allowed(error, namespace) from error
        raise _NotStartedError(error.message) from error


def _not_allowed(error: RefusedError, namespace: str) -> ClusterError:
    if "may not patch pods/ephemeralcontainers" in error.message:
        return ClusterError(
            error.message,
            hint='for --debug-image a Role there needs {apiGroups: [""], resources: '
            "[pods/ephemeralcontainers], verbs: [patch]} as well: docs/how-to/diagnose.md has it whole",
        )
    _, security, what = error.message.partition("violates PodSecurity")
    if security:
        return ClusterError(
            f"the Pod Security of namespace {namespace} lets no container trace, as that of --debug-image "
            f"does (SYS_PTRACE, as root):{what}",
            hint=_OTHERWISE,
        )
    return ClusterError(error.message, hint=_OTHERWISE)


def _await(api: Api, path: str, pod: str, name: str, image: str) -> None:
    """Return when it runs. Raises _NotStartedError."""
    deadline = time.monotonic() + _START
    while True:
        state = _state(_pod(api, path, pod), name)
        if "running" in state:
            return
        if "terminated" in state:
            raise _NotStartedError(_why_ended(state["terminated"], image))
        waiting = state.get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), objects.line(waiting.get("message"))
        why = f"{reason}: {message}" if message else reason
        if reason not in _COMES:
            raise _NotStartedError(f"its container of the image {image} does not start: {why}")
        if time.monotonic() > deadline:
            late = f" ({why})" if why else ""
            raise _NotStartedError(
                f"its container of the image {image} has not started in {_START:.0f} s{late}"
            )
        time.sleep(_POLL)


def _state(pod: Json, name: str) -> Json:
    statuses = objects.status(pod).get("ephemeralContainerStatuses") or []
    return next((each.get("state") or {} for each in statuses if each.get("name") == name), {})


def _why_ended(ended: Json, image: str) -> str:
    message = objects.line(ended.get("message")) or str(ended.get("reason") or "")
    if "python3" in message and ("not found" in message or "no such file" in message):
        return f"the image {image} has no python3, which the look needs"
    return f"its container of the image {image} has ended: {message or 'without a reason'}"
