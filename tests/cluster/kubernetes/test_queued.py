"""A job that its queue takes out and lets in again, without the queue's controller: as Kueue does it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.gates import Start, document, one_pod
from tests.cluster.kubernetes.jobs import Documents, Job

from ddplaunch.agent.contract import Exit

HELD = "ddplaunch.test/held"
"""A finalizer: the pod is still there when it has ended, as under a kubelet that has much to do."""


def admitted(documents: Documents) -> None:
    """Let in; one pod, which waits at the gate."""
    one_pod(documents)
    job = document(documents, "Job")
    job["spec"]["suspend"] = False
    job["spec"]["template"]["metadata"]["finalizers"] = [HELD]


def patch(job: Job, kind: str, name: str, change: dict[str, Any]) -> None:
    """Merge this into the object."""
    words = ["patch", kind, name, "--namespace", job.namespace, "--type=merge", "--patch", json.dumps(change)]
    job.cluster.kubectl(*words)


@pytest.mark.whole
def test_a_job_that_was_taken_out_goes_on(cluster: Cluster, start: Start) -> None:
    """Even when its pods have ended, with the code of what was stopped, before they are gone."""
    job = start(admitted, kubernetes={"queue": "team"})
    try:
        job.said(0, "gate", "waiting for node 1")
        first = job.pod(0)

        patch(job, "job", job.name, {"spec": {"suspend": True}})

        def phase() -> str:
            return str(cluster.get("pods", first, namespace=job.namespace)["status"]["phase"])

        cluster.until(lambda: phase() == "Failed", "it has ended", 90, job.logs)
        assert Exit.STOPPED == job.last_words(0, "gate")["exit"]
        patch(job, "job", job.name, {"spec": {"suspend": False}})

        cluster.until(lambda: job.pod(0) != first, "a new pod", 60, lambda: str(job.condition()))
        job.said(0, "gate", "waiting for node 1")
    finally:
        for each in job.all_pods():
            patch(job, "pod", each["metadata"]["name"], {"metadata": {"finalizers": None}})
