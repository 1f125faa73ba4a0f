"""The life of a cluster of the tests: it ends with its last user, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.cluster.kubernetes import docker
from tests.cluster.kubernetes.cluster import Cluster, down, kubeconfig
from tests.cluster.kubernetes.docker import ROOT

USER = """
import sys, time
from tests.cluster.kubernetes import cluster
name = sys.argv[1]
cluster.hold(name)
cluster.start_keeper(name)
cluster.Cluster.up(name)
print("up", flush=True)
time.sleep(600)
"""


def nodes(name: str) -> list[str]:
    """The containers of that cluster."""
    return docker.docker("ps", "--all", "--quiet", "--filter", f"label=io.x-k8s.kind.cluster={name}").split()


def until(happened: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


@pytest.fixture(name="name")
def _name(cluster: Cluster) -> Iterator[str]:
    """Of a cluster of its own."""
    if not cluster.ours:
        pytest.skip("starts a cluster of its own; unset KUBECONFIG")
    name = f"{cluster.name}-life"
    yield name
    down(name)


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_a_killed_user_leaves_no_cluster(cluster: Cluster, name: str) -> None:
    """SIGKILL while it comes up, half made: its nodes go, and the other cluster stays."""
    user = subprocess.Popen([sys.executable, "-c", USER, name], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        until(lambda: len(nodes(name)) > 0, "the first node is made", 300)
    finally:
        os.kill(user.pid, signal.SIGKILL)
        user.wait()

    # Its keeper needs the time to notice, and whatever it had called to end.
    until(lambda: not kubeconfig(name).parent.exists(), "its folder is gone", 300)

    assert [] == nodes(name)
    assert 3 == len(nodes(cluster.name)) == len(cluster.get("nodes"))
