"""Why a job does not start, as a real cluster has it."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.backend.conftest import Make, wait
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.backends.job import Job, State
from ddplaunch.backends.kubernetes.backend import KubernetesBackend

PAUSE = "registry.k8s.io/pause:3.10.1"
"""An image that every node has, which names no user and holds no Python."""


def told(backend: KubernetesBackend, job: Make, text: str, name: str, **keys: object) -> Job:
    """A job that was just submitted, once its detail holds this."""
    handle = backend.submit(job(name, **keys))
    return wait(backend, handle, lambda seen: text in seen.detail and seen.detail.startswith("nodes 0-1"))


def check(seen: Job, code: str, hint: str) -> None:
    """It waits, and what `diagnose` would say of it names both nodes."""
    assert State.PENDING is seen.state
    assert [(code, seen.detail, [0, 1])] == [(each.code, each.sentence, each.nodes) for each in seen.verdicts]
    assert hint in seen.hint


@pytest.mark.fault("node-missing")
def test_no_machine_takes_it(cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str) -> None:
    """GPUs that nobody has, labels that no machine carries, a claim that does not exist."""
    text = f"{len(cluster.workers)} Insufficient nvidia.com/gpu"
    seen = told(backend, job, text, "gpus", resources={"gpus": 8})
    check(seen, "node-missing", "lower `resources`")
    assert seen.detail.startswith("nodes 0-1 (pods gpus-0-")

    seen = told(backend, job, "affinity/selector", "zone", kubernetes={"node_selector": {"zone": "b"}})
    check(seen, "node-missing", "`kubernetes.node_selector`")

    data = {"name": "data", "claim": "nosuch", "mount_path": "/data"}
    seen = told(backend, job, 'persistentvolumeclaim "nosuch" not found', "claim", volumes=[data])
    check(seen, "node-missing", "`kubectl get pvc`")

    assert {"gpus", "zone", "claim"} == {
        each.handle.path.partition("/")[2] for each in _here(backend, namespace)
    }
    assert {"node-missing"} == {each.verdicts[0].code for each in _here(backend, namespace)}


def _here(backend: KubernetesBackend, namespace: str) -> list[Job]:
    return [each for each in backend.jobs() if each.handle.path.startswith(f"{namespace}/")]


def test_a_quota_is_used_up(cluster: Cluster, backend: KubernetesBackend, job: Make, namespace: str) -> None:
    """Nothing but events tells; when there is room, the job starts by itself."""
    cluster.kubectl("create", "quota", "small", "--hard=pods=0", "--namespace", namespace)
    text = "the namespace's quota small is used up: requested: pods=1, used: pods=0, limited: pods=0"
    seen = told(backend, job, text, "digits")
    check(seen, "node-missing", "`kubectl describe resourcequota`")

    cluster.kubectl("delete", "quota", "small", "--namespace", namespace)
    wait(backend, seen.handle, lambda each: each.state is not State.PENDING)
