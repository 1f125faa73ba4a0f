"""Anybody's own job in pods: no line of it is about ddplaunch."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import ROOT, Cluster
from tests.cluster.kubernetes.jobs import torch_in_pods
from tests.cluster.training import TRAIN

SLEEPS = "if rank == 1 and step == 5: time.sleep(3600)"
BEFORE = 12.0
"""Seconds for which the fault is there when somebody asks."""
_TORCHRUN = [
    *(str(Path(sys.executable).with_name("torchrun")), "--nnodes=2", "--nproc-per-node=1"),
    *("--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=llm-0.llm", "/code/train.py"),
]
_AS_USER = ["setpriv", "--clear-groups", "--regid=1000"]
_LEFT = """
import os
print(sorted(os.listdir("/tmp")), [p for p in os.listdir("/proc") if p.isdigit() and p != str(os.getpid())])
"""


class Training:
    """The Job `llm` of two pods, as in many a tutorial: no line of it is about ddplaunch."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def start(self, step: str, user: int = 0) -> None:
        """Train until all ranks have done some steps. `step`: what is done in each.

        `user`: to whom the container's root changes first, as many an entry point does.
        """
        program = TRAIN.format(before="", step=step)
        mounts, volumes = torch_in_pods(self._cluster)
        container = {
            "name": "pytorch",
            "image": images.TRAINER,
            "imagePullPolicy": "IfNotPresent",
            "command": [*_AS_USER, f"--reuid={user}", *_TORCHRUN] if user else _TORCHRUN,
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": True},
            "volumeMounts": [
                {"name": "code", "mountPath": "/code"},
                {"name": "tmp", "mountPath": "/tmp"},
                {
                    "name": "tmp",
                    "mountPath": "/root",
                },  # the interpreter may lie below, where only root may go
                *mounts,
            ],
        }
        sidecar = {
            "name": "a-sidecar",
            "image": images.TRAINER,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-c", "import time; time.sleep(3600)"],
        }
        spec = {
            "subdomain": "llm",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [sidecar, container],
            "volumes": [
                {"name": "code", "configMap": {"name": "llm"}},
                {"name": "tmp", "emptyDir": {}},
                *volumes,
            ],
        }
        template = {"metadata": {"labels": {"app": "llm"}}, "spec": spec}
        both = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": template}
        service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "llm"}}
        meta = {"name": "llm"}
        self._cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"train.py": program}},
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": both},
            namespace=self.namespace,
        )
        self._cluster.until(lambda: self._logs().count("up") == 2, "all ranks train", 150, self._logs)

    def _logs(self) -> str:
        return "".join(self._cluster.api.log(pod, "pytorch", self.namespace) for pod in self.pods())

    def pods(self) -> list[str]:
        """Their names, in the order of the nodes."""
        found = self._cluster.get("pods", namespace=self.namespace, selector="app=llm")
        return sorted(pod["metadata"]["name"] for pod in found)

    def leftovers(self) -> list[str]:
        """Files and processes in the container of each rank."""
        words = ["--namespace", self.namespace, "--container=pytorch", "--", "python3", "-c", _LEFT]
        return [self._cluster.kubectl("exec", pod, *words) for pod in self.pods()]


def documented() -> dict[str, Any]:
    """The Role as docs/how-to/diagnose.md has it."""
    text = (ROOT / "docs/how-to/diagnose.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, flags=re.DOTALL)
    role: dict[str, Any] = yaml.safe_load(block)
    return role
