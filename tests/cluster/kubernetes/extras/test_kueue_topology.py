"""How near to one another the real Kueue puts the pods of a job, where each worker is a rack of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.extras.queues import VERSION, queue

pytestmark = pytest.mark.usefixtures("kueue", "racks")

TRAIN = "print('training', flush=True)\n"
RACK, ROW, OURS = "ddplaunch.test/rack", "ddplaunch.test/row", "ddplaunch.test/for"


@pytest.fixture(name="racks")
def _racks(cluster: Cluster, namespace: str, kueue: None) -> Iterator[None]:
    """The label of a rack on each worker, their Topology, and a queue of these machines with room enough."""
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {
        "apiVersion": VERSION,
        "kind": "Topology",
        "metadata": {"name": namespace},
        "spec": {"levels": levels},
    }
    try:
        for number, worker in enumerate(cluster.workers):
            words = ["label", "node", worker, "--overwrite", f"{RACK}=rack-{number}", f"{OURS}={namespace}"]
            cluster.kubectl(*words)
        cluster.apply(topology)
        with queue(cluster, namespace, "1000", nodeLabels={OURS: namespace}, topologyName=namespace):
            yield
    finally:
        cluster.kubectl("delete", "topology", namespace, "--wait=false", "--ignore-not-found")
        cluster.kubectl("label", "nodes", *cluster.workers, f"{RACK}-", f"{OURS}-")


def near(cpus: float, **topology: str) -> dict[str, Any]:
    """A job's keys: so many CPUs for each of its two nodes, and how near they must be."""
    resources = {"cpus": cpus, "memory": "500Mi"}
    return {"resources": resources, "kubernetes": {"queue": "team", "topology": topology}}


def most_of_a_machine(cluster: Cluster) -> float:
    """CPUs of which a worker has not twice as many."""
    found = cluster.get("nodes", cluster.workers[0])["status"]["allocatable"]["cpu"]
    cpus = float(found.removesuffix("m")) / (1000 if found.endswith("m") else 1)
    return round(0.6 * cpus, 1)


def machines(jobs: Jobs, name: str) -> list[str]:
    """Those of the job's pods."""
    selector = f"app.kubernetes.io/instance={name}"
    pods = jobs.cluster.get("pods", namespace=jobs.namespace, selector=selector)
    return [each["spec"]["nodeName"] for each in pods]


def test_all_nodes_are_put_into_one_rack(jobs: Jobs) -> None:
    """Though by itself a job spreads them over the machines; its gate passes, and it trains there."""
    handle = jobs.submit("job", TRAIN, **near(0.5, required=RACK))

    jobs.becomes(handle, "succeeded")
    first, second = machines(jobs, "job")
    assert first == second


def test_a_job_that_no_rack_has_room_for_waits_and_says_so(jobs: Jobs) -> None:
    """Where one rack is only preferred, it takes two."""
    cpus = most_of_a_machine(jobs.cluster)
    waits = jobs.submit("waits", TRAIN, **near(cpus, required=RACK))

    found = jobs.becomes(waits, "pending", "it waits in queue team")
    found = jobs.becomes(waits, "pending", "allows to fit only 1 out of 2 pod(s)")
    assert "it starts when there is room" in found["hint"]

    jobs.call("cancel", waits)
    handle = jobs.submit("job", TRAIN, **near(cpus, preferred=RACK))
    jobs.becomes(handle, "succeeded")
    assert set(jobs.cluster.workers) == set(machines(jobs, "job"))


def test_a_level_that_the_machines_do_not_have_is_named(jobs: Jobs) -> None:
    """Such a job would wait for ever."""
    handle = jobs.submit("job", TRAIN, **near(0.5, required=ROW))

    found = jobs.becomes(handle, "pending", "does not contain the requested level")
    assert "`kubectl get topologies`" in found["hint"]
    assert "`kubernetes.topology`" in found["hint"]
