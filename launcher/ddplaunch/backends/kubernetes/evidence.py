"""Fetches a job's evidence: from its hub while it runs, from its hub's log afterwards."""

from __future__ import annotations

import time

from ddplaunch.agent.contract import Bundle, Files, JobStatus, codec
from ddplaunch.backends import files, printed
from ddplaunch.backends.kubernetes import objects, pod_exec
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import HUB, Json
from ddplaunch.backends.kubernetes.queries import ApiState

_ASK_STATUS = 10.0
_STOP = 15.0
_SILENCE = 120.0
_READ = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
_DENIED = 60.0
"""Seconds in which a server that lets us not exec is not asked again. One that begins lets nobody in."""
_denied: dict[tuple[str, str], float] = {}
"""By server and namespace: until when, by time.monotonic()."""


def status(api: Api, seen: ApiState) -> JobStatus | None:
    """Return what the hub says now; None where it does not stand, or may not be asked."""
    pod = hub_pod(seen)
    if pod is None or not _hub_runs(pod):
        return None
    python, folder = _agent(pod)
    if not python:
        return None
    # The file, not the hub: a look must not cost the job anything.
    words = [*python, "-c", _READ, f"{folder}/{Files.STATUS}"]
    try:
        return files.load(JobStatus, _run(api, seen, pod, words, _ASK_STATUS))
    except codec.ContractError:
        return None


def diagnose(api: Api, seen: ApiState) -> Bundle | None:
    """Fresh evidence of all ranks."""
    try:
        return files.load(Bundle, _ask(api, seen, ["diagnose"], pod_exec.LIMIT) or "")
    except codec.ContractError:
        return None


def stop(api: Api, seen: ApiState, why: str) -> bool:
    """Tell the hub to end the job, evidence first. False: nobody could be told."""
    return _ask(api, seen, ["stop", why], _STOP) is not None


def left(api: Api, seen: ApiState, *, follow: bool = False) -> Bundle | None:
    """Return what the hub has printed at its end; with `follow`, that is waited for."""
    pod = hub_pod(seen)
    if pod is None:
        return None
    for previous in ("false",) if follow else ("false", "true"):
        query = {"container": HUB, "previous": previous, "follow": str(follow).lower()}
        query["limitBytes"] = str(files.MAX_BYTES)
        try:
            with api.stream(log_path(seen, pod), "read the hub's log", query, _SILENCE) as response:
                found = printed.bundle(response.data.decode("utf-8", "replace").splitlines())
        except (RefusedError, SilentError):
            continue  # it has not begun, or never had an earlier life
        if found is not None:
            return found
    return None


def log_path(seen: ApiState, pod: Json) -> str:
    """Return the API path of the pod's log."""
    return f"{objects.collection('v1', 'pods', seen.namespace)}/{objects.name(pod)}/log"


def hub_pod(seen: ApiState) -> Json | None:
    """Return the pod of node 0, in which the hub runs."""
    return next((pod for pod in seen.pods if objects.node(pod) == 0), None)


def _hub_runs(pod: Json) -> bool:
    return objects.state(pod, HUB, "running") is not None


def _ask(api: Api, seen: ApiState, words: list[str], limit: float) -> str | None:
    pod = hub_pod(seen)
    if pod is None or not _hub_runs(pod):
        return None
    python, folder = _agent(pod)
    agent = [*python, f"{folder}/{Files.AGENT}", "ask", *words, "--folder", folder]
    return _run(api, seen, pod, agent, limit) or None if python else None


def _run(api: Api, seen: ApiState, pod: Json, words: list[str], limit: float) -> str:
    """Return its output; "" when it failed."""
    here = (api.place.server, seen.namespace)
    if time.monotonic() < _denied.get(here, 0.0):
        return ""
    try:
        ran = pod_exec.run(api, seen.namespace, objects.name(pod), HUB, words, limit)
    except pod_exec.NotAllowedError:
        _denied[here] = time.monotonic() + _DENIED
        return ""
    return ran.out if ran is not None and ran.code == 0 else ""


def _agent(pod: Json) -> tuple[list[str], str]:
    """The Python that runs the hub, with its options, and the job's folder."""
    for container in objects.spec(pod).get("initContainers") or []:
        if container.get("name") == HUB:
            words = [*(container.get("command") or []), *(container.get("args") or [])]
            for index, word in enumerate(words):
                if word.endswith(f"/{Files.AGENT}"):
                    return words[:index], word.rpartition("/")[0]
    return [], ""
