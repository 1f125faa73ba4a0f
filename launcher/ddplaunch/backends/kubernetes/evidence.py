"""Fetches a job's status and evidence: from its hub while it runs, from its hub's log afterwards."""

from __future__ import annotations

import time

from ddplaunch.agent.contract import Bundle, Exit, Files, JobStatus, codec
from ddplaunch.backends import files, printed
from ddplaunch.backends.kubernetes import objects, outcomes, pod_exec
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import HUB, Json
from ddplaunch.backends.kubernetes.queries import ApiState

_ASK_STATUS = 10.0
_STOP = 15.0
_SILENCE = 120.0
_READ = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
_DENIED = 60.0
"""Seconds in which a server that denied exec is not asked again. One that starts denies it to everyone."""
_denied: dict[tuple[str, str], float] = {}
"""By server and namespace: until when, by time.monotonic()."""


def status(api: Api, state: ApiState) -> JobStatus | None:
    """Return the hub's status; None where the hub is not up, or exec is not allowed."""
    pod = hub_pod(state)
    if pod is None or not _hub_runs(pod):
        return None
    python, folder = _agent(pod)
    if not python:
        return None
    # This reads the file, so that it costs the hub nothing.
    words = [*python, "-c", _READ, f"{folder}/{Files.STATUS}"]
    try:
        return files.load(JobStatus, _run(api, state, pod, words, _ASK_STATUS))
    except codec.ContractError:
        return None


def diagnose(api: Api, state: ApiState) -> Bundle | None:
    """Return new evidence of all ranks; None when the hub cannot be asked."""
    try:
        return files.bundle(_ask(api, state, ["diagnose"], pod_exec.LIMIT) or "")
    except codec.ContractError:
        return None


def stop(api: Api, state: ApiState, why: str) -> bool:
    """Ask the hub to collect evidence and end the job; return False when it cannot be asked."""
    return _ask(api, state, ["stop", why], _STOP) is not None


def left(api: Api, state: ApiState, *, follow: bool = False) -> Bundle | None:
    """Return the bundle that the hub printed at its end; with `follow`, wait for it. None: there is none."""
    return next(reversed(printed_bundles(api, state, follow=follow)), None)


def printed_bundles(api: Api, state: ApiState, *, follow: bool = False) -> list[Bundle]:
    """Return a bundle for each attempt that the hub has seen to its end; with `follow`, wait for the last."""
    pod = hub_pod(state)
    if pod is None:
        return []
    for previous in ("false",) if follow else ("false", "true"):
        query = {"container": HUB, "previous": previous, "follow": str(follow).lower()}
        query["limitBytes"] = str(files.MAX_BYTES)
        try:
            with api.stream(log_path(state, pod), "read the hub's log", query, _SILENCE) as response:
                found = [*printed.bundles(response.data.decode("utf-8", "replace").splitlines())]
        except (RefusedError, SilentError):
            continue  # the container has not started, or was never restarted
        if found:
            return found
    return []


def is_over(state: ApiState) -> bool:
    """Whether the hub of the present attempt has ended, and not well: then its log holds the bundle."""
    pod = hub_pod(state)
    if pod is None or objects.state(pod, HUB, "terminated") is None:
        return False
    return outcomes.termination_message([pod]).exit_code not in (None, Exit.OK)


def log_path(state: ApiState, pod: Json) -> str:
    """Return the API path of the pod's log."""
    return f"{objects.collection('v1', 'pods', state.namespace)}/{objects.name(pod)}/log"


def hub_pod(state: ApiState) -> Json | None:
    """Return the pod of node 0, in which the hub runs."""
    return next((pod for pod in state.pods if objects.node(pod) == 0), None)


def _hub_runs(pod: Json) -> bool:
    return objects.state(pod, HUB, "running") is not None


def _ask(api: Api, state: ApiState, words: list[str], limit: float) -> str | None:
    pod = hub_pod(state)
    if pod is None or not _hub_runs(pod):
        return None
    python, folder = _agent(pod)
    agent = [*python, f"{folder}/{Files.AGENT}", "ask", *words, "--folder", folder]
    return _run(api, state, pod, agent, limit) or None if python else None


def _run(api: Api, state: ApiState, pod: Json, words: list[str], limit: float) -> str:
    """Run a command in the hub's container and return its output; "" when it failed."""
    here = (api.place.server, state.namespace)
    if time.monotonic() < _denied.get(here, 0.0):
        return ""
    try:
        ran = pod_exec.run(api, state.namespace, objects.name(pod), HUB, words, limit)
    except pod_exec.NotAllowedError:
        _denied[here] = time.monotonic() + _DENIED
        return ""
    return ran.out if ran is not None and ran.code == 0 else ""


def _agent(pod: Json) -> tuple[list[str], str]:
    """Return the Python that runs the hub, with its options, and the job's folder; empty if not known."""
    for container in objects.spec(pod).get("initContainers") or []:
        if container.get("name") == HUB:
            words = [*(container.get("command") or []), *(container.get("args") or [])]
            for index, word in enumerate(words):
                if word.endswith(f"/{Files.AGENT}"):
                    return words[:index], word.rpartition("/")[0]
    return [], ""
