"""A cluster of its own for every process of a run, so that what a test breaks disturbs no other.

Most of a test is waiting, so several clusters on one machine cost little. Every test has its own namespace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import cluster as clusters
from tests.cluster.kubernetes import controllers, docker, images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import PLAIN, Start
from tests.cluster.kubernetes.jobs import STEPS, Documents, Job


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The run ends when its clusters have ended, even where its processes were killed."""
    if not hasattr(session.config, "workerinput"):
        clusters.await_keepers()


@pytest.fixture(name="cluster", scope="session")
def _cluster() -> Iterator[Cluster]:
    """What KUBECONFIG names, else one of ours: one that is up and that nobody uses, else a new one."""
    named = os.environ.get("KUBECONFIG")
    if named and not clusters.is_ours(Path(named)):
        yield Cluster("", Path(named))
        return
    reason = docker.missing() or images.missing()
    if reason:
        pytest.skip(reason)
    name = clusters.hold_free()
    if Cluster.attach(name) is None:
        clusters.start_keeper(name)
    cluster = Cluster.up(name)
    if cluster.broken.exists():  # by a test that was killed before it could mend it
        Faults(cluster).restore()
        cluster.broken.unlink()
    yield cluster
    clusters.let_go()
    clusters.await_keepers()


@pytest.fixture(name="agent", scope="module")
def _agent(cluster: Cluster) -> str:
    """The agent's image, on both machines that take pods."""
    if not cluster.ours:
        pytest.skip("puts an image into nodes, which only our own take; unset KUBECONFIG")
    tag = images.python_image("agent")
    for node in cluster.workers:
        images.load(node, tag)
    return tag


@pytest.fixture(name="jobset", scope="session")
def _jobset(cluster: Cluster) -> Iterator[None]:
    """JobSet, by its real controller."""
    yield from controllers.installed(cluster, controllers.JOBSET)


@pytest.fixture(name="faults")
def _faults(cluster: Cluster) -> Iterator[Faults]:
    """The cluster to break; whole again after the test."""
    if not cluster.ours:
        pytest.skip("breaks what lies below a cluster, which only our own let us; unset KUBECONFIG")
    faults = Faults(cluster)
    cluster.broken.touch()
    yield faults
    faults.clear()
    cluster.broken.unlink(missing_ok=True)


@pytest.fixture(name="namespace")
def _namespace(cluster: Cluster) -> Iterator[str]:
    """An empty one, for this test alone."""
    with cluster.namespace() as name:
        yield name
        print(cluster.describe(name))  # shown when the test failed


@pytest.fixture(name="submit")
def _submit(
    cluster: Cluster, namespace: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Start:
    """A function that submits a job of two nodes whose ranks do next to nothing; the test tells its times."""

    def submit(change: Callable[[Documents], None] = lambda documents: None, **keys: Any) -> Job:
        job = Job.submit(cluster, namespace, tmp_path, STEPS, change, **keys)
        job.record = record_property
        return job

    return submit


@pytest.fixture(name="start")
def _start(submit: Start) -> Start:
    """The same, where nobody needs torch."""
    return lambda *change, **keys: submit(*change, **{**PLAIN, **keys})
