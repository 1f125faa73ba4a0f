"""Where pods want to run, in the words of a real scheduler. None of them has to start."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import PLAIN, Start
from tests.cluster.kubernetes.jobs import Job
from tests.cluster.kubernetes.pods import pod

from ddplaunch.backends.kubernetes.pods import unschedulable

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "example.com/gpu"


def placed(job: Job) -> list[str]:
    """The machines of its pods that have one."""
    return sorted(each["spec"]["nodeName"] for each in job.all_pods() if "nodeName" in each["spec"])


def left(job: Job) -> str:
    """What is said of the one pod that has none; waits for it."""
    found: list[Any] = []

    def refused() -> bool:
        conditions = [each["status"].get("conditions", [{}])[0] for each in job.all_pods()]
        found[:] = [each["message"] for each in conditions if each.get("reason") == "Unschedulable"]
        return bool(placed(job)) and len(found) == 1

    job.cluster.until(refused, "one pod has no machine, and the other has", 60)
    return unschedulable(found[0]).hint


@pytest.mark.whole
def test_gpus_of_a_type_are_where_the_label_says_so(faults: Faults, submit: Start) -> None:
    """Both machines have GPUs; the pods prefer one machine each, and share the one with the right type."""
    first, second = faults.cluster.workers
    for node, kind in ((first, "Tesla-T4"), (second, "NVIDIA-L4")):
        faults.add_resource(node, 2, GPU)
        faults.label(node, "example.com/gpu.product", kind)

    job = submit(
        **PLAIN,
        resources={"gpus": 1, "gpu_type": "NVIDIA-L4"},
        kubernetes={"gpu_resource": GPU, "gpu_type_label": "example.com/gpu.product"},
    )

    assert [second, second] == [job.machine(0), job.machine(1)]


def test_one_node_of_the_job_on_a_machine_and_none_beside_what_it_avoids(
    faults: Faults, namespace: str, submit: Start
) -> None:
    """Both terms hold: the machine of the noisy pod is left alone, and the other is taken just once."""
    first, second = faults.cluster.workers
    noisy = pod("noisy", first, "import time; time.sleep(600)")
    noisy["metadata"]["labels"] = {"example.com/noisy": "yes"}
    faults.cluster.apply(noisy, namespace=namespace)
    avoided = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"example.com/noisy": "yes"}},
    }

    job = submit(
        **PLAIN,
        kubernetes={"one_per_machine": True, "affinity": {"podAntiAffinity": {REQUIRED: [avoided]}}},
    )

    assert "kubernetes.one_per_machine" in left(job)
    assert [second] == placed(job)
