"""One cluster for all tests of a run and all its workers; every test has a namespace of its own.

Tests run beside each other unless one asks for `faults`: it then has the cluster to itself, whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.kubernetes import cluster as clusters
from tests.cluster.kubernetes import docker, images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.turns import turn


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The run ends when its cluster has ended."""
    if not hasattr(session.config, "workerinput"):
        clusters.await_keeper(clusters.default_name())


@pytest.fixture(name="session_cluster", scope="session")
def _session_cluster() -> Iterator[Cluster]:
    """What KUBECONFIG names, else ours: one that is up, else a new one that ends with its last user."""
    name = clusters.default_name()
    named = os.environ.get("KUBECONFIG")
    if named and Path(named) != clusters.kubeconfig(name):
        yield Cluster("", Path(named))
        return
    reason = docker.missing() or images.missing()
    if reason:
        pytest.skip(reason)
    clusters.hold(name)
    if Cluster.attach(name) is None:
        clusters.start_keeper(name)
    yield Cluster.up(name)
    clusters.let_go()


@pytest.fixture(name="_turn", autouse=True)
def _taken_turn(request: pytest.FixtureRequest, _whole: None) -> Iterator[None]:
    """Alone for those who break something, together for all others."""
    with turn(alone="faults" in request.fixturenames):
        yield


@pytest.fixture(name="cluster")
def _cluster(session_cluster: Cluster, _turn: None) -> Cluster:
    """Three nodes, two of them for pods."""
    return session_cluster


@pytest.fixture(name="_whole", scope="session")
def _made_whole(session_cluster: Cluster) -> None:
    """What a test broke that was killed before it could mend it."""
    if session_cluster.ours and session_cluster.broken.exists():
        with turn(alone=True):
            Faults(session_cluster).restore()
            session_cluster.broken.unlink(missing_ok=True)


@pytest.fixture(name="faults")
def _faults(cluster: Cluster) -> Iterator[Faults]:
    """The cluster to break; whole again after the test."""
    if not cluster.ours:
        pytest.skip("faults inside nodes need our own cluster; unset KUBECONFIG")
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
