"""The interface that Gloo takes in a pod: what the job file sets is tried, and not overridden."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import STEPS, Job
from tests.cluster.kubernetes.test_gate_faults import told

GATE = {"timeout": "120s"}


def test_a_name_that_is_no_whole_name(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """As good as it would be for NCCL; pods have loopback and eth0 to choose from."""
    env = {"GLOO_SOCKET_IFNAME": "eth"}
    job = Job.submit(cluster, namespace, tmp_path, STEPS, env=env, gate=GATE)

    code, nodes, found = told(job, 0)
    assert ("gloo-interface-wrong", [0, 1]) == (code, nodes)
    assert "GLOO_SOCKET_IFNAME=eth: no interface is called 'eth'" in found.sentence
    assert all("eth0" in fact for fact in found.facts)
