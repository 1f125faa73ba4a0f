"""Fetches a job's status and evidence: from its hub while it runs, from its hub's log afterwards."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from ddplaunch.agent.contract import Bundle, Event, Exit, Files, JobStatus, Phase, codec
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import node_status, objects, outcomes, output, pod_exec
from ddplaunch.backends.kubernetes.api import Api, RefusedError, SilentError
from ddplaunch.backends.kubernetes.objects import GATE, HUB, Json
from ddplaunch.backends.kubernetes.pods import PodProblem
from ddplaunch.backends.kubernetes.queries import ApiState

_ASK_STATUS = 10.0
_STOP = 15.0
_SILENCE = 120.0
_READ = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
_DENIED = 60.0
"""Seconds for which a server that denied exec is not asked again. When one starts, it denies exec to
everyone."""
_denied: dict[tuple[str, str], float] = {}
"""By server and namespace: until when, in time.monotonic()."""


def status(api: Api, state: ApiState) -> JobStatus | None:
    """Return the hub's status; None if the hub is not up, or if exec is not allowed."""
    pod = hub_pod(state)
    if pod is None or not _hub_runs(pod):
        return None
    python, folder = _agent(pod)
    if not python:
        return None
    # This reads the file, so it costs the hub nothing.
    words = [*python, "-c", _READ, f"{folder}/{Files.STATUS}"]
    try:
        return files.load(JobStatus, _run(api, state, pod, words, _ASK_STATUS))
    except codec.ContractError:
        return None


def diagnose(api: Api, state: ApiState) -> Bundle | None:
    """Return new evidence of all ranks; None if the hub cannot be asked."""
    try:
        return files.bundle(_ask(api, state, ["diagnose"], pod_exec.LIMIT) or "")
    except codec.ContractError:
        return None


def stop(api: Api, state: ApiState, why: str) -> bool:
    """Ask the hub to collect evidence and end the job. Returns False if it cannot be asked."""
    return _ask(api, state, ["stop", why], _STOP) is not None


def left(api: Api, state: ApiState, *, follow: bool = False) -> Bundle | None:
    """Return the bundle that the hub printed when it ended; with `follow`, wait for it. None: there is
    none.
    """
    return next(reversed(printed_bundles(api, state, follow=follow)), None)


def printed_bundles(api: Api, state: ApiState, *, follow: bool = False) -> list[Bundle]:
    """Return a bundle for each attempt that the hub has seen to its end; with `follow`, wait for the last
    one.
    """
    pod = hub_pod(state)
    if pod is None:
        return []
    for previous in ("false",) if follow else ("false", "true"):
        query = {"container": HUB, "previous": previous, "follow": str(follow).lower()}
        query["limitBytes"] = str(files.MAX_BYTES)
        try:
            with api.stream(log_path(state, pod), "read the hub's log", query, _SILENCE) as response:
                found = [*files.printed_bundles(response.data.decode("utf-8", "replace").splitlines())]
        except (RefusedError, SilentError):
            continue  # the container has not started, or has never been restarted
        if found:
            return found
    return []


def is_over(state: ApiState) -> bool:
    """Whether the hub of the present attempt has ended, but not well: then its log holds the bundle."""
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
    """Run a command in the hub's container and return its output; "" if it failed."""
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
    """Return the Python that runs the hub, with its options, and the job's folder; empty if they are not
    known.
    """
    for container in objects.spec(pod).get("initContainers") or []:
        if container.get("name") == HUB:
            words = [*(container.get("command") or []), *(container.get("args") or [])]
            for index, word in enumerate(words):
                if word.endswith(f"/{Files.AGENT}"):
                    return words[:index], word.rpartition("/")[0]
    return [], ""


_PODS = 8
"""Logs to read at a time: whatever keeps a hundred pods from the hub shows in a few of them."""
_BYTES = 1 << 18
_GATE_SILENCE = 2.0


class GateReport(NamedTuple):
    """A report in a gate's log. `at`: seconds since the epoch, by the clock of the pod's machine."""

    at: float
    report: UnreachedReport


def unknown_to_hub(state: ApiState, hub_status: JobStatus | None) -> list[Json]:
    """Return the pods at the gate that the hub does not know. `hub_status` None: that is not known."""
    hub = hub_pod(state)
    if hub is None or not objects.state(hub, HUB, "running"):
        return []
    nodes = hub_status.nodes if hub_status is not None else []
    known = {each.node for each in nodes if each.phase != Phase.STARTING}
    return [
        pod for pod in state.pods if objects.node(pod) not in known and objects.state(pod, GATE, "running")
    ]


def failed_gates(state: ApiState, nodes: Collection[int]) -> list[Json]:
    """Return those of these nodes' pods whose gate has failed."""
    found = [pod for pod in state.pods if objects.node(pod) in nodes]
    return [
        pod for pod in found if objects.state(pod, GATE, "terminated") and not node_status.has_passed(pod)
    ]


def not_reaching_hub(before: Collection[int], state: ApiState, hub_status: JobStatus | None) -> set[int]:
    """Return the nodes that do not reach the hub: those in `before`, and those that are at the gate now.

    A node stays in the set when its gate has failed or its pod is gone. It leaves the set when the hub knows
    it or its gate has passed.
    """
    known = (
        {each.node for each in hub_status.nodes if each.phase != Phase.STARTING}
        if hub_status is not None
        else set()
    )
    passed = {objects.node(pod) for pod in state.pods if node_status.has_passed(pod)}
    at_gate = {node for pod in unknown_to_hub(state, hub_status) if (node := objects.node(pod)) is not None}
    return (set(before) | at_gate) - known - passed


class GateReports:
    """The reports in the logs of one job's gates. Each line is read only once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._first: dict[tuple[str, str], GateReport] = {}  # by pod and code
        self._last: dict[str, GateReport] = {}
        self._read_until: dict[str, float] = {}  # by pod, up to when

    def read(self, state: ApiState, failed_or_waiting: Iterable[Json]) -> None:
        """Read the logs of these gates, a few at a time. If one cannot be read, it is tried again later."""
        pods = list(failed_or_waiting)[:_PODS]
        if pods:
            with ThreadPoolExecutor(len(pods)) as pool:
                list(pool.map(lambda pod: self._read_log(state, pod), pods))

    def problems(self, found: Iterable[Json], missed: Collection[int] = ()) -> dict[int, PodProblem]:
        """Return each node's last report. Nodes with the same code share the first one's.

        `found`: their pods; `missed`: further nodes, whose pods may be gone by now.
        """
        names = {objects.name(pod) for pod in found}
        verdicts = {
            each.report.node: each.report.verdict
            for name, each in self._last.items()
            if name in names or each.report.node in missed
        }
        return {
            node: PodProblem(verdict.code, first.sentence, verdict.hint, replace(verdict, text=first.text))
            for nodes, verdict in hub_unreached.by_cause(verdicts)
            for first in [verdicts[nodes[0]]]
            for node in nodes
        }

    def events(self, nodes: Collection[int]) -> list[Event]:
        """Return an event for each report of these nodes, with the time of the report's first line."""
        return [
            Event(at, "notice", f"{report.verdict.code}: {report.verdict.sentence}", report.node)
            for at, report in self._first.values()
            if report.node in nodes
        ]

    def _read_log(self, state: ApiState, pod: Json) -> None:
        name = objects.name(pod)
        query: dict[str, str | int] = {"container": GATE, "timestamps": "true", "limitBytes": _BYTES}
        if name in self._read_until:
            query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._read_until[name]))
        path = log_path(state, pod)
        with (
            contextlib.suppress(RefusedError, SilentError),  # the next snapshot tries again
            self._api.stream(path, "read the gate's log", query, _GATE_SILENCE) as response,
        ):
            settled = _settled(state)
            for line in response.data.splitlines():
                (at, _), text = output.stamped(line)
                self._read_until[name] = max(self._read_until.get(name, 0.0), at)
                report = scheduler_log.read_report(text)
                if report is not None and at >= settled:
                    self._last[name] = GateReport(at, report)
                    self._first.setdefault((name, report.verdict.code), GateReport(at, report))


def _settled(state: ApiState) -> float:
    hub = hub_pod(state)
    found = hub and (objects.state(hub, HUB, "running") or objects.state(hub, HUB, "terminated"))
    return (objects.at((found or {}).get("startedAt")) or 0.0) + scheduler_log.SETTLES
