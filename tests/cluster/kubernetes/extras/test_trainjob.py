"""TrainJobs, by the real Trainer and JobSet: with the runtime of our chart, and without anything of ours."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import ROOT, Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import torch_in_pods
from tests.cluster.kubernetes.workloads import first_verdict
from tests.cluster.training import hangs

pytestmark = [pytest.mark.usefixtures("trainer"), pytest.mark.timeout(2400)]
"""The first of them may have to wait until two controllers are compiled, and installed."""

CHART = ROOT / "charts/ddplaunch-runtimes"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
VERSION = "trainer.kubeflow.org/v1alpha1"
SHORT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
print("trained with", dist.get_world_size(), "token", os.path.exists("/var/run/secrets"), flush=True)
"""
_BEFORE = 12.0
"""Seconds for which a rank sleeps before somebody asks."""


class TrainJobs:
    """TrainJobs of two nodes in one namespace, with this machine's torch and one program."""

    def __init__(self, cluster: Cluster, namespace: str, runtime: str) -> None:
        self.cluster, self.namespace, self.runtime = cluster, namespace, runtime

    def start(self, name: str, program: str, trainer: dict[str, Any]) -> None:
        """Create it. `trainer`: its section of that name, but for what all have."""
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"t.py": program}},
            {
                "apiVersion": VERSION,
                "kind": "TrainJob",
                "metadata": {"name": name},
                "spec": {
                    "runtimeRef": {"name": self.runtime},
                    "trainer": {"numNodes": 2, "numProcPerNode": 1, **trainer},
                    "runtimePatches": [self._patch(name)],
                },
            },
            namespace=self.namespace,
        )

    def _patch(self, name: str) -> dict[str, Any]:
        """What a user adds to a runtime's pods: volumes, and a machine for each."""
        mounts, volumes = torch_in_pods(self.cluster)
        apart = {
            "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        pod = {
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "volumes": [{"name": "code", "configMap": {"name": name}}, *volumes],
            "containers": [
                {
                    "name": "node",
                    "volumeMounts": [{"name": "code", "mountPath": "/code"}, *mounts],
                    "securityContext": {"runAsUser": 0},
                }
            ],
        }
        job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
        spec = {"template": {"spec": {"replicatedJobs": [job]}}}
        return {"manager": "ddplaunch.example/tests", "trainingRuntimeSpec": spec}

    def ends(self, name: str) -> dict[str, dict[str, str]]:
        """Conditions by their type, once it has ended."""
        found: dict[str, dict[str, str]] = {}

        def ended() -> bool:
            status = self.cluster.get("trainjobs", name, namespace=self.namespace).get("status", {})
            found.update({each["type"]: each for each in status.get("conditions", [])})
            return bool(found.keys() & {"Complete", "Failed"})

        self.cluster.until(ended, f"{name} ends", 480, lambda: self.cluster.describe(self.namespace))
        return found

    def logs(self, name: str, container: str = "node") -> str:
        """Of all its pods."""
        selector = f"--selector=jobset.sigs.k8s.io/jobset-name={name}"
        words = ["logs", "-n", self.namespace, selector, "-c", container, "--tail=-1", "--prefix"]
        return self.cluster.kubectl(*words, check=False)

    def diagnosed(self, kind: str, name: str) -> dict[str, Any]:
        """The first verdict, for whoever asks while it hangs."""
        return first_verdict(self.cluster, f"kubernetes://{self.namespace}/{kind}/{name}")


@pytest.fixture(name="trainjobs")
def _trainjobs(cluster: Cluster, namespace: str, agent: str) -> Iterator[TrainJobs]:
    """With our chart installed for this namespace, as docs/how-to/other-launchers.md has it."""
    runtime = f"torch-{namespace}"
    values = {
        "name": runtime,
        "agentImage": agent,
        "image": images.TRAINER,
        "python": sys.executable,
        "namespaces": f"{{{namespace}}}",
        "options": "{--gate-timeout=30}",
    }
    words: list[str | Path] = ["helm", "install", "runtimes", CHART, "--namespace", namespace]
    for key, value in values.items():
        words += ["--set", f"{key}={value}"]
    cluster.run(words)
    yield TrainJobs(cluster, namespace, runtime)
    cluster.run(["helm", "uninstall", "runtimes", "--namespace", namespace])


@pytest.fixture(name="plain")
def _plain(cluster: Cluster, namespace: str) -> Iterator[TrainJobs]:
    """With a runtime as Trainer has it: nothing of ours takes part."""
    runtime = f"plain-{namespace}"
    container = {"name": "node", "image": images.TRAINER}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}}
    cluster.apply(
        {
            "apiVersion": VERSION,
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": runtime},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template},
        }
    )
    yield TrainJobs(cluster, namespace, runtime)
    cluster.kubectl("delete", "clustertrainingruntime", runtime)


def test_a_trainjob_trains_behind_the_gate(trainjobs: TrainJobs) -> None:
    """Rank, number of nodes and master are Trainer's; its training has no token for the API server."""
    trainjobs.start("digits", SHORT, {"args": [TORCHRUN, "/code/t.py"]})

    found = trainjobs.ends("digits")

    log = trainjobs.logs("digits")
    assert {"Complete"} == found.keys(), log
    assert 2 == log.count("trained with 2 token False"), log
    assert "node 1 of 2; node 0 is digits-node-0-0.digits" in log


@pytest.mark.fault("dns-unanswered")
def test_a_trainjob_without_names_is_refused_in_its_status(trainjobs: TrainJobs, faults: Faults) -> None:
    """CoreDNS has no pods: no rank starts, and the sentence stands where `kubectl describe` shows it."""
    faults.scale_dns(0)
    trainjobs.start("digits", SHORT, {"args": [TORCHRUN, "/code/t.py"]})

    found = trainjobs.ends("digits")

    said = trainjobs.logs("digits", "ddplaunch-status") + trainjobs.logs("digits")
    assert {"Failed", "Verdict"} == found.keys(), said
    assert "DnsUnanswered" == found["Verdict"]["reason"], said
    sentence = found["Verdict"]["message"]
    refused = (
        r"dns-unanswered: node [01].* cannot resolve digits-node-0-0\.digits: the name server does not answer"
    )
    assert re.match(refused, sentence), sentence
    assert 0 == trainjobs.logs("digits").count("trained with")
    shown = trainjobs.cluster.kubectl("describe", "trainjob", "digits", "-n", trainjobs.namespace)
    assert sentence in " ".join(shown.split())


def test_a_trainjob_without_ddplaunch_is_diagnosed_while_it_hangs(plain: TrainJobs) -> None:
    """Trainer's own runtime and command: rank 1 sleeps, and is named, by the TrainJob and by its JobSet."""
    plain.start("llm", hangs(1), {"command": [TORCHRUN, "/code/t.py"]})
    plain.cluster.until(lambda: plain.logs("llm").count("up") == 2, "all ranks train", 300)
    time.sleep(_BEFORE)

    for kind in ("trainjob", "jobset"):
        verdict = plain.diagnosed(kind, "llm")
        assert ("rank-in-user-code", [1], [0]) == (verdict["code"], verdict["ranks"], verdict["victims"])
