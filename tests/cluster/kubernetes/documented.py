"""The Job `train` of docs/how-to/run-on-many-nodes.md, made to fit the tests' cluster."""

from __future__ import annotations

import re
from typing import Any

import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import ROOT, Cluster
from tests.cluster.kubernetes.jobs import Documents

_PAGE = ROOT / "docs/how-to/run-on-many-nodes.md"
_TOGETHER = "batch.kubernetes.io/job-name"


def documents() -> Documents:
    """The Job with its Service."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return list(yaml.safe_load_all(text))


def fitted(made: Documents, torch: dict[str, Any]) -> dict[str, Any]:
    """What the Job's pods are made of, which now have our image and torch, each on a machine of its own."""
    (job,) = [each for each in made if each["kind"] == "Job"]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    apart = {"labelSelector": {"matchLabels": {_TOGETHER: "train"}}, "topologyKey": "kubernetes.io/hostname"}
    spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spec["terminationGracePeriodSeconds"] = 1
    (container,) = spec["containers"]
    container["image"] = images.TRAINER
    for volume in torch["volumes"]:
        spec["volumes"].append({"name": volume["name"], "hostPath": {"path": volume["host_path"]}})
        container["volumeMounts"].append({"name": volume["name"], "mountPath": volume["mount_path"]})
    return spec


def exit_codes(cluster: Cluster, namespace: str) -> dict[str, int | None]:
    """Of the pods' containers, by pod; None: it runs."""
    return {
        pod["metadata"]["name"]: each["state"].get("terminated", {}).get("exitCode")
        for pod in cluster.get("pods", namespace=namespace, selector=f"{_TOGETHER}=train")
        for each in pod["status"].get("containerStatuses", [])
    }
