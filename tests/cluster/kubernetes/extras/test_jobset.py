"""Jobs that the real JobSet starts again: all nodes at once, through the gate, as another attempt."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.extras.conftest import Jobs

pytestmark = pytest.mark.usefixtures("jobset")

TRAIN = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"


def attempts(jobs: Jobs, name: str) -> set[str]:
    """The numbers that its pods carry."""
    selector = f"app.kubernetes.io/instance={name}"
    pods = jobs.cluster.get("pods", namespace=jobs.namespace, selector=selector)
    label = "jobset.sigs.k8s.io/restart-attempt"
    return {pod["metadata"]["labels"][label] for pod in pods}


def test_a_lost_pod_starts_all_nodes_again(jobs: Jobs) -> None:
    """A node is evicted: every node passes the gate once more, with another attempt's number."""
    handle = jobs.submit("again", TRAIN, kubernetes={"jobset": True}, retries=1)
    jobs.becomes(handle, "running")
    jobs.cluster.until(lambda: jobs.log("again").count("training") == 2, "both nodes train", 180)
    assert {"0"} == attempts(jobs, "again")
    pods = jobs.cluster.get("pods", namespace=jobs.namespace, selector="app.kubernetes.io/instance=again")

    jobs.evict(pods[0]["metadata"]["name"])

    jobs.cluster.until(lambda: attempts(jobs, "again") == {"1"}, "there are new pods", 300)
    jobs.becomes(handle, "running")
    jobs.cluster.until(lambda: jobs.log("again").count("training") == 2, "both nodes train again", 180)
    assert 2 == jobs.log("again", "gate").count("gate passed")
    assert 1 == jobs.status(handle)["attempt"]


def test_without_a_retry_left_the_job_has_failed(jobs: Jobs) -> None:
    """A program that is wrong is not started again, retries or not: it would be wrong again."""
    handle = jobs.submit("wrong", "raise ValueError('label 11')\n", kubernetes={"jobset": True}, retries=3)

    found = jobs.becomes(handle, "failed")

    assert 40 == found["exit_code"]
    assert {"0"} == attempts(jobs, "wrong")
