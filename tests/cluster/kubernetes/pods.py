"""Single pods, for tests that need no job."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster


def pod(name: str, node: str, program: str = "", **container: Any) -> dict[str, Any]:
    """A pod on that node which runs a Python program."""
    each: dict[str, Any] = {
        "name": "main",
        "image": images.TRAINER,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
        **container,
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [each],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def ended(cluster: Cluster, namespace: str, name: str) -> Any:
    """Its status, when it is over."""
    cluster.until(
        lambda: cluster.get("pods", name, namespace=namespace)["status"]["phase"] in ("Succeeded", "Failed"),
        f"{name} ends",
        120,
        lambda: cluster.describe(namespace),
    )
    return cluster.get("pods", name, namespace=namespace)["status"]


def evict(cluster: Cluster, namespace: str, name: str) -> None:
    """Take a pod away as a drain does it, or an administrator."""
    meta = {"name": name, "namespace": namespace}
    text = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "--filename", "-", stdin=text)
