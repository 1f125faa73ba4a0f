"""StatefulSets, whose controller is Kubernetes' own: their pods carry no label that names them."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.workloads import TORCHRUN, Workloads
from tests.cluster.training import hangs

APP = {"app": "trains"}
COMMAND = [
    TORCHRUN,
    "--nnodes=2",
    "--node-rank=$(NODE)",
    "--master-addr=llm-0.llm",
    "--nproc-per-node=1",
    "/code/t.py",
]
NODE = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}


def test_a_rank_of_a_stateful_set_is_told(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Its pods are found by the selector in its spec."""
    jobs = Workloads(cluster, namespace, tmp_path)
    jobs.program(hangs(1))
    template = jobs.pod("main", COMMAND, APP, env=[{"name": "NODE", "valueFrom": NODE}])
    template["metadata"] = {"labels": APP}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": APP}
    spec = {
        "serviceName": "llm",
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": APP},
        "template": template,
    }
    jobs.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm"}, "spec": service},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "llm"}, "spec": spec},
    )
    jobs.hangs("app=trains", "main", 2)

    verdict = jobs.diagnosed("statefulset", "llm")
    found = (verdict["code"], verdict["nodes"], verdict["ranks"], verdict["victims"])
    assert ("rank-in-user-code", [1], [1], [0]) == found
