"""Anybody's own job in pods, which hangs: one command tells why, and leaves nothing in them."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.backend.conftest import As, Cli
from tests.cluster.kubernetes.cluster import ROOT, Cluster
from tests.cluster.kubernetes.jobs import torch_in_pods
from tests.cluster.training import TRAIN

from ddplaunch.backends.kubernetes import outside

SLEEPS = "if rank == 1 and step == 5: time.sleep(3600)"
_BEFORE = 12.0
"""Seconds for which the fault is there when somebody asks."""
_TORCHRUN = [
    *(str(Path(sys.executable).with_name("torchrun")), "--nnodes=2", "--nproc-per-node=1"),
    *("--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=llm-0.llm", "/code/train.py"),
]
_LEFT = """
import os
print(sorted(os.listdir("/tmp")), [p for p in os.listdir("/proc") if p.isdigit() and p != str(os.getpid())])
"""


class Training:
    """The Job `llm` of two pods, as in many a tutorial: no line of it is about ddplaunch."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace

    def start(self, step: str) -> None:
        """Train until all ranks have done some steps. `step`: what is done in each."""
        program = TRAIN.format(before="", step=step)
        mounts, volumes = torch_in_pods(self._cluster)
        container = {
            "name": "pytorch",
            "image": images.TRAINER,
            "imagePullPolicy": "IfNotPresent",
            "command": _TORCHRUN,
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "securityContext": {"runAsUser": 0, "readOnlyRootFilesystem": True},
            "volumeMounts": [
                {"name": "code", "mountPath": "/code"},
                {"name": "tmp", "mountPath": "/tmp"},
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
        words = ["logs", "--namespace", self.namespace, "--selector=app=llm", "--container=pytorch"]
        return self._cluster.kubectl(*words, "--prefix", "--tail=40", check=False)

    def pods(self) -> list[str]:
        """Their names, in the order of the nodes."""
        found = self._cluster.get("pods", "--namespace", self.namespace, "--selector=app=llm")
        return sorted(pod["metadata"]["name"] for pod in found)

    def leftovers(self) -> list[str]:
        """Files and processes in the container of each rank."""
        words = ["--namespace", self.namespace, "--container=pytorch", "--", "python3", "-c", _LEFT]
        return [self._cluster.kubectl("exec", pod, *words) for pod in self.pods()]


@pytest.fixture(name="training")
def _training(cluster: Cluster, namespace: str) -> Training:
    return Training(cluster, namespace)


def documented() -> dict[str, Any]:
    """The Role as docs/how-to/diagnose.md has it."""
    text = (ROOT / "docs/how-to/diagnose.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, flags=re.DOTALL)
    role: dict[str, Any] = yaml.safe_load(block)
    return role


def _diagnosed(cli: Cli, target: str) -> dict[str, Any]:
    code, out, said = cli("diagnose", target, "--json")
    assert 0 == code, said
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_rank_that_sleeps(as_user: As, training: Training, tmp_path: Path) -> None:
    """Rank and pod are named, for one who may do what the page says; the job goes on as it was."""
    training.start(SLEEPS)
    time.sleep(_BEFORE)
    ann, pods, before = as_user(documented()), training.pods(), training.leftovers()

    code, text, said = ann(
        "diagnose", f"kubernetes://{training.namespace}?selector=app=llm", "--bundle", tmp_path / "bundle.zip"
    )

    assert 0 == code, said
    assert f"culprit     rank 1 on node 1 ({pods[1]})" in text
    found = _diagnosed(ann, str(tmp_path / "bundle.zip"))
    verdict = found["verdicts"][0]
    assert ("rank-in-user-code", [1], [0], [1]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
        verdict["nodes"],
    ), found
    assert "rank 1 is in main (train.py:" in verdict["sentence"]
    assert [{"node": 0, "host": pods[0]}, {"node": 1, "host": pods[1]}] == found["nodes"]
    assert before == training.leftovers()
    print(text)


@pytest.mark.whole
def test_a_job_that_trains(cli: Cli, training: Training) -> None:
    """Nobody is accused; a plain Job may be named as those of ddplaunch are."""
    training.start("pass")

    found = _diagnosed(cli, f"kubernetes://{training.namespace}/job/llm")
    again = _diagnosed(cli, f"kubernetes://{training.namespace}/llm")

    assert ([], "2 ranks seen, and nothing shows that they hang") == (found["verdicts"], found["detail"])
    assert ([], 2) == (again["verdicts"], again["evidence"]["ranks"])


def test_a_pod_without_python(cluster: Cluster, as_user: As, namespace: str) -> None:
    """It is told at once; so is a right that is missing, and a job that is not there."""
    container = {
        "name": "main",
        "image": images.TRAINER,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/python3", "-c", "import time; time.sleep(3600)"],
        "env": [{"name": "PATH", "value": "/nowhere"}],
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}, namespace=namespace
    )
    words = ["wait", "pod/bare", "--namespace", namespace, "--for=condition=Ready", "--timeout=100s"]
    cluster.kubectl(*words)
    ann = as_user(documented())
    began = time.monotonic()

    code, _, said = ann("diagnose", f"kubernetes://{namespace}/pod/bare")

    assert (106, True) == (code, "could be looked at: bare: no answer: its image has no python3" in said), (
        said
    )
    assert time.monotonic() - began < outside._LIMIT / 2  # it is not waited for
    code, _, said = ann("diagnose", f"kubernetes://{namespace}/job/nothing")
    assert (102, True) == (code, f"of Job nothing in namespace {namespace}" in said), said
    cluster.kubectl("delete", "rolebinding", "ann", "--namespace", namespace)
    role = documented()
    role["metadata"]["name"] = "too-little"
    role["rules"] = [rule for rule in role["rules"] if "pods/exec" not in rule["resources"]]
    code, _, said = as_user(role)("diagnose", f"kubernetes://{namespace}/pod/bare")
    assert (106, True) == (code, "resources: [pods/exec], verbs: [get, create]" in said), said
