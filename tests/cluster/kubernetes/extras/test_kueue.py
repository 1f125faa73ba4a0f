"""Jobs in a queue of the real Kueue: what is said while they wait, and of those that make room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.kubernetes.cache import ClusterError
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.extras.conftest import Jobs

pytestmark = pytest.mark.usefixtures("kueue")

TRAIN = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"
ONE_JOB = {"cpus": 0.5, "memory": "900Mi"}


def queued(**options: Any) -> dict[str, Any]:
    """A job's keys: half of the nodes' CPUs, in the queue of the test."""
    return {"resources": ONE_JOB, "kubernetes": {"queue": "team", **options}}


@pytest.fixture(name="queue", autouse=True)
def _queue(cluster: Cluster, namespace: str, kueue: None) -> Iterator[None]:
    """A queue with room for one such job, in which the more important one goes first."""
    version = "kueue.x-k8s.io/v1beta1"
    quota = [{"name": "cpu", "nominalQuota": "1500m"}, {"name": "memory", "nominalQuota": "16Gi"}]
    flavor = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": namespace}}
    room = {
        "apiVersion": version,
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": namespace, "resources": quota}],
                }
            ],
        },
    }
    door = {
        "apiVersion": version,
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": namespace},
        "value": 1000,
    }
    cluster.apply(flavor, room, door, priority, namespace=namespace)
    yield
    for kind in ("clusterqueue", "resourceflavor", "priorityclass"):
        cluster.kubectl("delete", kind, namespace, "--wait=false")


def test_a_job_says_why_it_waits_and_starts_when_there_is_room(jobs: Jobs) -> None:
    """The first is let in; the second waits, in Kueue's own words, until the first is cancelled."""
    first = jobs.submit("first", TRAIN, **queued())
    jobs.becomes(first, "running")

    second = jobs.submit("second", TRAIN, **queued())

    found = jobs.becomes(second, "pending", "it waits in queue team")
    assert re.search(r"insufficient (unused )?quota for cpu", found["detail"])
    assert "it starts by itself when there is room" in found["hint"]
    jobs.call("cancel", first)
    jobs.becomes(second, "running")


def test_a_queue_that_does_not_exist_is_named(jobs: Jobs) -> None:
    """A misspelt queue would let nobody in, ever."""
    with pytest.raises(ClusterError, match="exit 106: error: there is no queue taem in namespace"):
        jobs.submit("lost", TRAIN, **queued(queue="taem"))


def test_a_preempted_job_is_not_failed(jobs: Jobs) -> None:
    """It is taken out for a more important one, waits, says so, and runs again afterwards."""
    low = jobs.submit("low", TRAIN, **queued())
    jobs.becomes(low, "running")

    high = jobs.submit("high", TRAIN, **queued(priority_class=jobs.namespace))

    jobs.becomes(high, "running")
    found = jobs.becomes(low, "pending", "it was taken out to wait in queue team again")
    assert "Preempted" in found["detail"]
    jobs.call("cancel", high)
    jobs.becomes(low, "running")
