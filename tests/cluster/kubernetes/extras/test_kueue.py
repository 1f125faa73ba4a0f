"""Jobs in a queue of the real Kueue: what is said while they wait, and of those that make room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.kubernetes.cache import ClusterError
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.extras.queues import VERSION, queue

pytestmark = pytest.mark.usefixtures("kueue")

TRAIN = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"
ONE_JOB = {"cpus": 0.5, "memory": "900Mi"}


def queued(**options: Any) -> dict[str, Any]:
    """A job's keys: half of the nodes' CPUs, in the queue of the test."""
    return {"resources": ONE_JOB, "kubernetes": {"queue": "team", **options}}


@pytest.fixture(name="queue", autouse=True)
def _queue(cluster: Cluster, namespace: str, kueue: None) -> Iterator[None]:
    """A queue with room for one such job, in which the more important one goes first."""
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": namespace},
        "value": 1000,
    }
    of_jobs = {
        "apiVersion": VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": namespace},
        "value": 1000,
    }
    with queue(cluster, namespace, "1500m"):
        cluster.apply(priority, of_jobs, namespace=namespace)
        yield
    for kind in ("priorityclass", "workloadpriorityclass"):
        cluster.kubectl("delete", kind, namespace, "--wait=false")


def test_a_job_says_why_it_waits_and_starts_when_there_is_room(jobs: Jobs) -> None:
    """The first is let in; the second waits, in Kueue's own words, until the first is cancelled."""
    first = jobs.submit("first", TRAIN, **queued())
    jobs.becomes(first, "running")

    second = jobs.submit("second", TRAIN, **queued())

    found = jobs.becomes(second, "pending", "it waits in queue team")
    assert re.search(r"insufficient (unused )?quota for cpu", found["detail"])
    assert "it starts when there is room" in found["hint"]
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
    found = jobs.becomes(low, "pending", "it was evicted and waits in queue team again")
    assert "Preempted" in found["detail"]
    jobs.call("cancel", high)
    jobs.becomes(low, "running")


def test_a_job_of_higher_priority_overtakes(jobs: Jobs) -> None:
    """It takes the place of one that runs, and the next of its kind that of one that waits longer."""
    ordinary = jobs.submit("ordinary", TRAIN, **queued())
    jobs.becomes(ordinary, "running")

    urgent = jobs.submit("urgent", TRAIN, **queued(queue_priority=jobs.namespace))
    jobs.becomes(urgent, "running")
    jobs.becomes(ordinary, "pending", "it was evicted and waits in queue team again")
    later = jobs.submit("later", TRAIN, **queued(queue_priority=jobs.namespace))
    jobs.becomes(later, "pending", "it waits in queue team")
    jobs.call("cancel", urgent)

    jobs.becomes(later, "running")
    assert "pending" == jobs.status(ordinary)["state"]


def test_a_priority_that_does_not_exist_is_named(jobs: Jobs) -> None:
    """Kueue never looks at such a job, and tells nobody, as one shows that is sent past `submit`."""
    with pytest.raises(ClusterError, match="exit 106: error: there is no WorkloadPriorityClass hihg"):
        jobs.submit("lost", TRAIN, **queued(queue_priority="hihg"))

    rendered = jobs.call("render", jobs.file("lost"), "--to", "kubernetes").stdout
    jobs.cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=rendered)
    handle = f"kubernetes://{jobs.namespace}/lost"
    found = jobs.becomes(handle, "pending", "it waits for queue team, and Kueue has not seen it yet")
    assert "is there a WorkloadPriorityClass hihg" in found["hint"]
