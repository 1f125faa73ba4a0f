"""Real faults of machines and containers, before a job starts: the verdict, the node, the hint that helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import (
    CLEAR,
    GATE,
    MENDED,
    Start,
    comes,
    containers,
    faulty,
    gate,
    one_pod,
    passes,
    told,
    trained,
)
from tests.cluster.kubernetes.jobs import Documents, unplaced, with_torch

from ddplaunch.agent.contract import Exit

# --- what the containers have


@pytest.mark.whole
@pytest.mark.fault("image-lacks")
def test_an_image_without_torch(cluster: Cluster, start: Start) -> None:
    """The image's own Python has none."""
    job = start(gate={"port": GATE})

    code, _, found = told(job, 0)
    assert ("image-lacks", [0, 1]) == (code, faulty(found))
    assert "/usr/bin/python3 has no torch" in found.sentence
    assert "name the Python that has torch: `python:` in the job file" in found.hint
    assert Exit.MISCONFIGURED == job.last_words(0, "gate")["exit"]
    assert "PodFailurePolicy" == job.ended()

    trained(start(**MENDED, **with_torch(cluster), gate={}))


@pytest.mark.whole
@pytest.mark.fault("shm-too-small")
def test_shared_memory_of_a_container(start: Start) -> None:
    """64 MiB, as it is where nobody mounts anything there, and the job asks for 1 GiB."""

    def without_mount(documents: Documents) -> None:
        for each in containers(documents).values():
            each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] != "shm"]

    job = start(without_mount, resources={"shm": "1Gi"})

    code, _, found = told(job, 0)
    assert ("shm-too-small", [0, 1]) == (code, faulty(found))
    assert "/dev/shm is 64 MiB; wanted: 1.0 GiB" in found.sentence
    assert "`resources.shm`" in found.hint

    passes(start(**CLEAR, resources={"shm": "1Gi"}))


@pytest.mark.fault("gpu-missing")
def test_gpus_that_only_the_scheduler_sees(faults: Faults, start: Start) -> None:
    """The nodes say that they have some, the pods are scheduled by that, and no container has a device."""
    for machine in faults.cluster.workers:
        faults.add_resource(machine, 2)
    job = start(resources={"gpus": 2})

    code, _, found = told(job, 0)
    assert ("gpu-missing", [0, 1]) == (code, faulty(found))
    assert "no device of a GPU is here; wanted: 2" in found.sentence
    assert "is the device plugin, or the container runtime's GPU support, at work" in found.hint
    assert "PodFailurePolicy" == job.ended()

    passes(start(**CLEAR, resources={"gpus": 2}, volumes=faults.add_devices(2)))


def with_torch_of_path(minor: str) -> Callable[[Documents], None]:
    """Nodes find a torch of this minor version, as the shell has it: as much of one as a gate looks at."""
    lines = (
        "mkdir -p /ddplaunch/torch/distributed; touch /ddplaunch/torch/__init__.py; "
        f"echo \"__version__ = '2.{minor}.0'\" > /ddplaunch/torch/version.py; "
        "touch /ddplaunch/torch/distributed/__init__.py /ddplaunch/torch/distributed/run.py; "
    )

    def change(documents: Documents) -> None:
        gate = containers(documents)["gate"]
        words = " ".join(gate["command"])
        gate["command"] = ["sh", "-c", f"{lines} export PYTHONPATH=/ddplaunch; exec {words}"]

    return change


@pytest.mark.whole
@pytest.mark.fault("version-differs")
def test_nodes_with_different_software(start: Start) -> None:
    """Node 1 finds another torch than node 0: an environment of its machine, say, comes first on its path."""
    job = start(with_torch_of_path("$((13 + DDPLAUNCH_NODE))"), gate={"port": GATE})

    code, nodes, found = told(job, 0)
    assert ("version-differs", [1]) == (code, nodes)
    assert unplaced(found).startswith("node 1 (job-1) has torch 2.14.0, node 0 (job-0) torch 2.13.0")
    assert Exit.MISCONFIGURED == job.last_words(0, "gate")["exit"]
    assert "use one image, or one environment on a shared file system, for all nodes" in found.hint

    passes(start(with_torch_of_path("13"), **CLEAR, gate={"port": GATE}))


@pytest.mark.whole
@pytest.mark.fault("environment-differs")
def test_a_setting_that_was_changed_between_two_pods(cluster: Cluster, start: Start, namespace: str) -> None:
    """All pods take it from one ConfigMap, at the moment at which each is started."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}

    def from_settings(documents: Documents) -> None:
        for name in ("gate", "trainer"):
            source = {"configMapRef": {"name": "settings", "optional": True}}
            containers(documents)[name]["envFrom"] = [source]

    def at_first(documents: Documents) -> None:
        from_settings(documents)
        one_pod(documents)

    job = start(at_first)
    job.said(0, "gate", "waiting for node 1")
    cluster.apply({**settings, "data": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}, namespace=namespace)
    comes(job)

    code, nodes, found = told(job, 0)
    assert ("environment-differs", [1]) == (code, nodes)
    sentence = "node 1 (job-1) has TORCH_DISTRIBUTED_DEBUG=DETAIL, node 0 (job-0) no "
    assert unplaced(found).startswith(sentence)
    assert "set it for all nodes, by `env` in the job file" in found.hint

    passes(start(from_settings, **CLEAR, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}))


# --- nodes


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_pod_that_a_quota_keeps_away(cluster: Cluster, start: Start, namespace: str) -> None:
    """Its name is unknown because its pod has no address yet, and that is what is said."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}}
    cluster.apply({**quota, "spec": {"hard": {"pods": "1"}}}, namespace=namespace)
    words = ["--namespace", namespace]
    cluster.until(
        lambda: "hard" in cluster.get("resourcequotas", "one", namespace=namespace).get("status", {}),
        "the quota counts",
        60,
    )
    job = start(gate=gate(timeout="8s"))

    code, nodes, found = told(job, 0)
    assert ("node-missing", [1]) == (code, nodes)
    assert "node 1 (job-1) never came: waited 8 s; node 0 (job-0) is here" == unplaced(found)
    assert "kubectl get pods" in found.hint
    assert "PodFailurePolicy" == job.ended()
    assert ("node-missing", [1]) == (job.verdict.code, job.verdict.nodes)
    assert "no pod at all: `kubectl get events`" in found.hint
    assert "exceeded quota" in cluster.kubectl("get", "events", *words)

    cluster.kubectl("delete", "quota", "one", *words)
    passes(start(**CLEAR))


# --- and how it looks from outside
