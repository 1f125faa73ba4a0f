"""A job of 500 nodes on the real control plane: what it costs to send, to look at, and to take away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.extras.fake_nodes import LABEL, fake_nodes

from ddplaunch.backends.job import Job, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.plan import plan
from ddplaunch.render import Rendered, render
from ddplaunch.spec.load import load

NODES = 500


class Cost:
    """What an order cost: seconds, requests to the API server, and bytes that it answered."""

    seconds = 0.0
    requests = 0
    size = 0

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.requests} requests, {self.size / 1e6:.2f} MB"


@contextmanager
def counted(backend: KubernetesBackend, what: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cost]:
    """Count what the backend does meanwhile."""
    cost = Cost()
    request = backend.api.request
    begun = time.monotonic()

    def counting(*words: Any, **keys: Any) -> Any:
        cost.requests += 1
        answer = request(*words, **keys)
        cost.size += len(json.dumps(answer.body))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(backend.api, "request", counting)
        yield cost
    cost.seconds = time.monotonic() - begun
    print(f"{what}: {cost}")


@pytest.fixture(name="backend")
def _backend(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesBackend]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    backend = KubernetesBackend(tmp_path / "state")
    yield backend
    backend.close()


def job(work: Path, namespace: str) -> Rendered:
    """One node on each of the machines that are not there."""
    toleration = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}
    values = {
        "apiVersion": "ddplaunch/v1",
        "name": "many",
        "nodes": NODES,
        "nproc_per_node": 8,
        "image": images.TRAINER,
        "command": ["train.py"],
        "kubernetes": {
            "namespace": namespace,
            "node_selector": {LABEL: "fake"},
            "tolerations": [toleration],
        },
    }
    (work / "job.yaml").write_text(json.dumps(values))
    return render(plan.make(load(work / "job.yaml"), "kubernetes", work))


@pytest.mark.timeout(1200)
def test_a_job_of_500_nodes(
    cluster: Cluster,
    namespace: str,
    backend: KubernetesBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sent by a handful of requests; one look lists the pods once; cancelled, it is gone within minutes."""
    if not cluster.ours:
        pytest.skip("makes 500 nodes, which our own cluster may be given; unset KUBECONFIG")
    with fake_nodes(cluster, NODES, tmp_path):
        with counted(backend, "submit", monkeypatch) as submitted:
            handle = backend.submit(job(tmp_path, namespace))

        looks: list[Cost] = []
        seen: list[Job] = []

        def all_run() -> bool:
            fresh = KubernetesBackend(tmp_path / "state")
            with counted(fresh, "status", monkeypatch) as cost:
                seen.append(fresh.job(handle))
            fresh.close()
            looks.append(cost)
            status = seen[-1].status
            return status is not None and all(each.phase != "starting" for each in status.nodes)

        cluster.until(all_run, "all pods run", 400, lambda: str(seen[-1])[:2000])
        with counted(backend, "cancel", monkeypatch) as cancelled:
            over = backend.cancel(handle)

    assert seen[-1].status is not None
    assert list(range(NODES)) == [each.node for each in seen[-1].status.nodes]
    assert State.CANCELLED is over.state
    assert submitted.requests < NODES / 10  # of which most ask whether one may
    assert submitted.size < 1e6
    assert max(look.requests for look in looks) <= 4
    assert max(look.size for look in looks) < NODES * 25_000
    assert cancelled.size < NODES * 100_000
    assert cancelled.seconds < 200
