"""Reads the logs of gates that do not reach the hub, which is all that a waiting user can learn of them.

It reads no log of a pod that has checked in, and none while the hub's container does not run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from ddplaunch.agent.contract import Event, JobStatus, Phase
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.backends.kubernetes import evidence, objects, output, termination
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import GATE, HUB, Json
from ddplaunch.backends.kubernetes.pods import PodProblem
from ddplaunch.backends.kubernetes.queries import ApiState

_PODS = 8
"""Logs that are read at a time: what keeps a hundred pods from the hub shows in a few of them."""
_BYTES = 1 << 18
_SILENCE = 2.0


class GateReport(NamedTuple):
    """Report in a gate's log. `at`: seconds since the epoch, by the clock of the pod's machine."""

    at: float
    report: UnreachedReport


def unknown_to_hub(state: ApiState, hub_status: JobStatus | None) -> list[Json]:
    """Return the pods at the gate that the hub does not know. `hub_status` None: it is not known."""
    hub = evidence.hub_pod(state)
    if hub is None or not objects.state(hub, HUB, "running"):
        return []
    nodes = hub_status.nodes if hub_status is not None else []
    known = {each.node for each in nodes if each.phase != Phase.STARTING}
    return [
        pod for pod in state.pods if objects.node(pod) not in known and objects.state(pod, GATE, "running")
    ]


def failed_gates(state: ApiState, nodes: Collection[int]) -> list[Json]:
    """Return those pods of these nodes whose gate has failed."""
    found = [pod for pod in state.pods if objects.node(pod) in nodes]
    return [
        pod for pod in found if objects.state(pod, GATE, "terminated") and not termination.has_passed(pod)
    ]


def not_reaching_hub(before: Collection[int], state: ApiState, hub_status: JobStatus | None) -> set[int]:
    """Return the nodes that do not reach the hub: those of `before`, and those at the gate now.

    A node stays among them when its gate has failed or its pod has gone, and leaves them when the hub knows
    it or its gate has passed.
    """
    known = (
        {each.node for each in hub_status.nodes if each.phase != Phase.STARTING}
        if hub_status is not None
        else set()
    )
    passed = {objects.node(pod) for pod in state.pods if termination.has_passed(pod)}
    at_gate = {node for pod in unknown_to_hub(state, hub_status) if (node := objects.node(pod)) is not None}
    return (set(before) | at_gate) - known - passed


class GateReports:
    """The reports in the logs of one job's gates. Each line is read once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._first: dict[tuple[str, str], GateReport] = {}  # by pod and code
        self._last: dict[str, GateReport] = {}
        self._read_until: dict[str, float] = {}  # up to when, by pod

    def read(self, state: ApiState, failed_or_waiting: Iterable[Json]) -> None:
        """Read the logs of these gates, a few of them; one that cannot be read is tried again later."""
        pods = list(failed_or_waiting)[:_PODS]
        if pods:
            with ThreadPoolExecutor(len(pods)) as pool:
                list(pool.map(lambda pod: self._read_log(state, pod), pods))

    def problems(self, found: Iterable[Json], missed: Collection[int] = ()) -> dict[int, PodProblem]:
        """Return by node the last report of each; nodes with the same code share the first one's.

        `found`: their pods; `missed`: more nodes, whose pods may be gone by now.
        """
        names = {objects.name(pod) for pod in found}
        verdicts = {
            each.report.node: each.report.verdict
            for name, each in self._last.items()
            if name in names or each.report.node in missed
        }
        return {
            node: PodProblem(
                verdict.code, first.sentence, verdict.hint, replace(verdict, sentence=first.wording)
            )
            for nodes, verdict in hub_unreached.by_cause(verdicts)
            for first in [verdicts[nodes[0]]]
            for node in nodes
        }

    def events(self, nodes: Collection[int]) -> list[Event]:
        """Return an event for each report of these nodes, at the time of its first line."""
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
        path = evidence.log_path(state, pod)
        with (
            contextlib.suppress(RefusedError, SilentError),  # the next snapshot tries again
            self._api.stream(path, "read the gate's log", query, _SILENCE) as response,
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
    hub = evidence.hub_pod(state)
    found = hub and (objects.state(hub, HUB, "running") or objects.state(hub, HUB, "terminated"))
    return (objects.at((found or {}).get("startedAt")) or 0.0) + scheduler_log.SETTLES
