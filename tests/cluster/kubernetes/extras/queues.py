"""Queues of Kueue, for the jobs of one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.kubernetes.cluster import Cluster

VERSION = "kueue.x-k8s.io/v1beta1"


@contextmanager
def queue(cluster: Cluster, namespace: str, cpus: str, **flavor: Any) -> Iterator[None]:
    """LocalQueue `team` there, with a quota of so many CPUs on machines of this flavor; gone afterwards."""
    quota = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "16Gi"}]
    kind = {
        "apiVersion": VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": namespace},
        "spec": flavor,
    }
    room = {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": namespace, "resources": quota}],
                }
            ],
        },
    }
    door = {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    try:
        cluster.apply(kind, room, door, namespace=namespace)
        yield
    finally:
        for each in ("clusterqueue", "resourceflavor"):
            cluster.kubectl("delete", each, namespace, "--wait=false", "--ignore-not-found")
