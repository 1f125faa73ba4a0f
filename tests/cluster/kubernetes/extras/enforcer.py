"""kube-router, which enforces NetworkPolicies by rules on the nodes; the tests' own network ignores them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.kubernetes import controllers, docker, images
from tests.cluster.kubernetes.cache import locked
from tests.cluster.kubernetes.cluster import Cluster

_ROUTER = controllers.Controller(
    "kube-router",
    "v1.6.1",
    "./cmd/kube-router",
    values="",
    probe={},
    home="github.com/cloudnativelabs",
    base=images.DEBIAN,
    user="0:0",
)
_RULES = ("KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-")
_ONLY_FIREWALL = ["--run-firewall=true", "--run-router=false", "--run-service-proxy=false"]
_META = {"name": _ROUTER.name, "labels": {"app": _ROUTER.name}}
_OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": _META,
        "rules": [
            {
                "apiGroups": ["", "networking.k8s.io"],
                "resources": ["namespaces", "pods", "services", "nodes", "endpoints", "networkpolicies"],
                "verbs": ["get", "list", "watch"],
            }
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _META,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _ROUTER.name},
        "subjects": [{"kind": "ServiceAccount", "name": _ROUTER.name, "namespace": _ROUTER.namespace}],
    },
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _META,
        "spec": {
            "selector": {"matchLabels": _META["labels"]},
            "template": {
                "metadata": {"labels": _META["labels"]},
                "spec": {
                    "serviceAccountName": _ROUTER.name,
                    "hostNetwork": True,
                    "terminationGracePeriodSeconds": 5,
                    "containers": [
                        {
                            "name": "router",
                            "image": _ROUTER.image,
                            "imagePullPolicy": "Never",
                            "args": _ONLY_FIREWALL,
                            "env": [
                                {
                                    "name": "NODE_NAME",
                                    "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                                }
                            ],
                            "securityContext": {"privileged": True},
                        }
                    ],
                },
            },
        },
    },
]


@contextmanager
def enforced(cluster: Cluster) -> Iterator[None]:
    """NetworkPolicies are, on the machines that take pods, for as long as this lasts."""
    with locked(f"controller-{_ROUTER.name}", f"{_ROUTER.name} is compiled", controllers.COMPILE_SECONDS):
        controllers.image(_ROUTER)
    for node in cluster.workers:
        images.load(node, _ROUTER.image)
    try:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _ROUTER.namespace}})
        cluster.apply(*_OBJECTS, namespace=_ROUTER.namespace)
        words = ["rollout", "status", f"daemonset/{_ROUTER.name}", "-n", _ROUTER.namespace]
        cluster.kubectl(*words, "--timeout=120s", timeout=130)
        cluster.until(lambda: all(map(_rules, cluster.workers)), "the machines have their rules", 60)
        yield
    finally:
        _remove(cluster)


def _remove(cluster: Cluster) -> None:
    """Take away its pods, then the rules that they leave."""
    for kind in ("clusterrolebinding", "clusterrole"):
        cluster.kubectl("delete", kind, _ROUTER.name, "--ignore-not-found")
    words = ["delete", "namespace", _ROUTER.namespace, "--ignore-not-found", "--timeout=120s"]
    cluster.kubectl(*words, timeout=130)
    for node in cluster.workers:
        words = ["run", "--rm", "--privileged", f"--network=container:{node}", _ROUTER.image]
        docker.docker(*words, "--cleanup-config")
        assert not _rules(node), f"{node} has rules of {_ROUTER.name} left"


def _rules(node: str) -> list[str]:
    """Those of a machine that are made for policies."""
    saved = docker.docker("exec", node, "iptables-save", "--table", "filter")
    return [line for line in saved.splitlines() if any(name in line for name in _RULES)]
