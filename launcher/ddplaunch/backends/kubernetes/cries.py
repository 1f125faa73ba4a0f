"""Gates that do not reach the hub, by their own logs: nobody else can tell a person who waits for the job.

Nothing is read of a pod that has checked in, nor while node 0's hub does not run, which says enough.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ddplaunch.agent.contract import Event, JobStatus, Phase
from ddplaunch.agent.diagnosis.gate import hub_unreached
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport
from ddplaunch.backends.kubernetes import evidence, objects, output
from ddplaunch.backends.kubernetes.api import Api, SilentError
from ddplaunch.backends.kubernetes.objects import GATE, HUB, Json
from ddplaunch.backends.kubernetes.pods import Trouble
from ddplaunch.backends.kubernetes.queries import Seen
from ddplaunch.backends.kubernetes.refusals import RefusedError

_PODS = 8
"""Pods that are listened to: what keeps a hundred from the hub keeps these from it, too."""
_BYTES = 1 << 18
_SILENCE = 2.0


class Heard(NamedTuple):
    """`at`: seconds since the epoch, by the clock of the pod's machine."""

    at: float
    cry: UnreachedReport


def unheard(seen: Seen, told: JobStatus | None) -> list[Json]:
    """Pods at the gate that the hub does not know. `told`: by the hub, None where nobody may ask it."""
    hub = evidence.hub_pod(seen)
    if hub is None or not objects.state(hub, HUB, "running"):
        return []
    nodes = told.nodes if told is not None else []
    known = {each.node for each in nodes if each.phase != Phase.STARTING}
    return [
        pod for pod in seen.pods if objects.node(pod) not in known and objects.state(pod, GATE, "running")
    ]


def in_vain(seen: Seen, nodes: Collection[int]) -> list[Json]:
    """Return those pods of these nodes whose gate has failed."""
    found = [pod for pod in seen.pods if objects.node(pod) in nodes]
    return [pod for pod in found if (objects.state(pod, GATE, "terminated") or {}).get("exitCode")]


def still(before: Collection[int], seen: Seen, told: JobStatus | None) -> set[int]:
    """Nodes that do not reach the hub, as far as this look tells: those of `before`, and those at the gate.

    A node stays one of them when its gate has failed or its pod has gone, and leaves them when the hub knows
    it or its gate has passed.
    """
    known = {each.node for each in told.nodes if each.phase != Phase.STARTING} if told is not None else set()
    passed = {
        objects.node(pod)
        for pod in seen.pods
        if (objects.state(pod, GATE, "terminated") or {"exitCode": 1}).get("exitCode") == 0
    }
    at_gate = {node for pod in unheard(seen, told) if (node := objects.node(pod)) is not None}
    return (set(before) | at_gate) - known - passed


class Cries:
    """What was heard of one job's pods, each line read once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._first: dict[tuple[str, str], Heard] = {}  # by pod and code
        self._last: dict[str, Heard] = {}
        self._read: dict[str, float] = {}  # up to when, by pod

    def listen(self, seen: Seen, found: Iterable[Json]) -> None:
        """Read the logs of these pods' gates."""
        some = list(found)[:_PODS]
        if some:
            with ThreadPoolExecutor(len(some)) as pool:
                list(pool.map(lambda pod: self._listen(seen, pod), some))

    def troubles(self, found: Iterable[Json], missed: Collection[int] = ()) -> dict[int, Trouble]:
        """Return by node the last report of each; nodes with the same code share the first one's.

        Of these pods, and of nodes that were `missed`, whose pods may be gone by now.
        """
        names = {objects.name(pod) for pod in found}
        said = {
            heard.cry.node: heard.cry.verdict
            for name, heard in self._last.items()
            if name in names or heard.cry.node in missed
        }
        return {
            node: Trouble(verdict.code, said[who[0]].sentence, verdict.hint, verdict=verdict)
            for who, verdict in hub_unreached.alike(said)
            for node in who
        }

    def events(self, nodes: Collection[int]) -> list[Event]:
        """When each of these nodes first said what it says."""
        return [
            Event(at, "notice", f"{cry.verdict.code}: {cry.verdict.sentence}", cry.node)
            for at, cry in self._first.values()
            if cry.node in nodes
        ]

    def _listen(self, seen: Seen, pod: Json) -> None:
        name = objects.name(pod)
        query: dict[str, str | int] = {"container": GATE, "timestamps": "true", "limitBytes": _BYTES}
        if name in self._read:
            query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._read[name]))
        path = evidence.log_path(seen, pod)
        with (
            contextlib.suppress(RefusedError, SilentError),  # the next look tries again
            self._api.stream(path, "read the gate's log", query, _SILENCE) as response,
        ):
            settled = _settled(seen)
            for line in response.data.splitlines():
                (at, _), text = output.stamped(line)
                self._read[name] = max(self._read.get(name, 0.0), at)
                cry = scheduler_log.read(text)
                if cry is not None and at >= settled:
                    self._last[name] = Heard(at, cry)
                    self._first.setdefault((name, cry.verdict.code), Heard(at, cry))


def _settled(seen: Seen) -> float:
    hub = evidence.hub_pod(seen)
    found = hub and (objects.state(hub, HUB, "running") or objects.state(hub, HUB, "terminated"))
    return (objects.at((found or {}).get("startedAt")) or 0.0) + scheduler_log.SETTLES
