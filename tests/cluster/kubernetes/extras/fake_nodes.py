"""Machines that are not there, and pods on them that only seem to run: kwok, with a real control plane."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes import controllers
from tests.cluster.kubernetes.cache import locked, say
from tests.cluster.kubernetes.cluster import Cluster

LABEL = "kwok.x-k8s.io/node"
_KWOK = controllers.Controller("kwok", "v0.8.0", "./cmd/kwok", "", {})
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_NEVER = "pod-complete"
"""A stage of pods that ends every pod of a Job at once."""


@contextmanager
def fake_nodes(cluster: Cluster, count: int, work: Path) -> Iterator[None]:
    """So many nodes, which carry LABEL and take no pod that does not tolerate it."""
    with locked("controller-kwok", "kwok is compiled", controllers.COMPILE_SECONDS):
        program = controllers.compiled(_KWOK)
    words: list[str | Path] = [program, "--kubeconfig", cluster.kubeconfig]
    words += ["--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={LABEL}=fake"]
    for stage in _stages():
        words += ["--config", stage]
    nodes = [_node(number) for number in range(count)]
    with (work / "kwok.log").open("wb") as log:
        kwok = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", *map(str, words)], env=cluster.env, stdout=log, stderr=log
        )
        try:
            say(f"makes {count} nodes")
            text = "\n".join(json.dumps(node) for node in nodes)
            cluster.kubectl("create", "--filename", "-", stdin=text, timeout=180)
            wait = ["wait", "nodes", f"--selector={LABEL}=fake", "--for=condition=Ready", "--timeout=300s"]
            cluster.kubectl(*wait, timeout=310)
            yield
        finally:
            cluster.kubectl("delete", "nodes", f"--selector={LABEL}=fake", "--wait=false", timeout=180)
            _gone(cluster)
            kwok.send_signal(signal.SIGTERM)
            kwok.wait(30)


def _gone(cluster: Cluster) -> None:
    """kwok must see the pods off; those of kube-proxy go with their nodes."""

    def count() -> int:
        return len(cluster.kubectl("get", "nodes", f"--selector={LABEL}=fake", "--output=name").split())

    cluster.until(lambda: count() == 0, "the nodes are gone", 180, lambda: str(count()))


def _stages() -> list[Path]:
    folder = controllers.module(_KWOK) / "kustomize/stage"
    found = [path for stage in _STAGES for path in sorted((folder / stage).glob("*.yaml"))]
    return [path for path in found if path.stem not in (_NEVER, "kustomization")]


def _node(number: int) -> dict[str, Any]:
    name = f"fake-{number}"
    there = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {LABEL: "fake"},
            "labels": {LABEL: "fake", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {"taints": [{"key": LABEL, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": there, "capacity": there},
    }
