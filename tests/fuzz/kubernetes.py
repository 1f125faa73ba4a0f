"""Objects of the API server, as recorded from a real cluster, and the logs of pods."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

from tests.fuzz import evidence, mutate, target, told
from tests.fuzz.target import Target

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.platforms import scheduler_log
from ddplaunch.agent.platforms.termination import text
from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import objects, output
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.kubernetes.queries import Queries
from ddplaunch.backends.kubernetes.snapshot import Snapshot
from ddplaunch.errors import ClusterError

_RECORDED = target.ROOT / "tests/unit/backends/kubernetes/recorded"
_VERDICT = Verdict.of("port-in-use", "node 0: port 29500 is held by pid 812", "gate", [0], hint="stop it")


class Objects(Target):
    """Jobs, pods, events and termination messages, with other texts in them: their form is the server's."""

    def __init__(self, folder: Path) -> None:
        self._backend = KubernetesBackend(folder)
        self._recorded = [json.loads(path.read_text()) for path in sorted(_RECORDED.glob("*.json"))]
        for each in self._recorded:
            _speak(each["pods"])

    def make(self, random: Random) -> Any:
        given = copy.deepcopy(random.choice(self._recorded))
        places = list(_texts(given))
        for _ in range(random.randint(1, 6)):
            holder, key = random.choice(places)
            holder[key] = mutate.text(random, holder[key], mutate.TOKENS)
        return given

    def feed(self, given: Any) -> None:
        with contextlib.suppress(ClusterError):
            for seen in Queries(cast("Api", _Server(given))).all("default"):
                told.job(self._backend._job(Snapshot(seen), None))


class PodLog(Target):
    """Lines with a time, reports of gates, bundles."""

    def __init__(self, _: Path) -> None:
        report = scheduler_log.report_line(scheduler_log.UnreachedReport(1, 3.5, _VERDICT))
        self._lines = [
            f"2026-11-21T11:00:00.123456789Z {report}",
            "2026-11-21T11:00:00Z [0/1] step 7, loss 0.3",
            "2026-11-21T11:00:00.5+01:00 [0/ddplaunch] rank 0 has ended",
            *evidence.log_lines(),
        ]

    def make(self, random: Random) -> str:
        return mutate.text(random, "\n".join(self._lines), self._lines)

    def feed(self, given: str) -> None:
        for raw in given.encode("utf-8", "backslashreplace").split(b"\n"):
            _, line = output.stamped(raw)
            report = scheduler_log.read_report(line)
            if report is not None:
                str(report.verdict.sentence)
        files.printed_bundle(given.split("\n"))


class _Server:
    """Answers with what was recorded, as far as `Queries.all` asks."""

    def __init__(self, given: Any) -> None:
        self._given = given if isinstance(given, dict) else {}

    def get(self, path: str, *_: object) -> Any:
        if path.endswith("/jobs"):
            return {"apiVersion": "batch/v1", "kind": "JobList", "items": [self._given.get("owner")]}
        if path.endswith("/workloads"):
            return {"items": [self._given.get("workload")]}
        return {"items": self._given.get(path.rpartition("/")[2])}


def _texts(given: Any) -> Iterator[tuple[Any, Any]]:
    """Where each text stands that a user, a controller or an agent has written."""
    pairs = enumerate(given) if isinstance(given, list) else given.items()
    for key, value in pairs:
        if isinstance(value, (dict, list)):
            yield from _texts(value)
        elif isinstance(value, str) and key not in ("apiVersion", "kind"):
            yield given, key


def _speak(pods: list[Any]) -> None:
    """Every container that has ended leaves an agent's last words."""
    for pod in pods:
        for each in objects.containers(pod).values():
            ended = (each.get("state") or {}).get("terminated")
            if ended and not ended.get("message"):
                ended["message"] = text(30, [_VERDICT])
