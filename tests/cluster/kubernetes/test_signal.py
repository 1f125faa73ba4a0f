"""The job file's `signal` in pods: one is deleted, and the ranks of all write their checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import Job

COUNTS = """
import os, signal, time
got = 0
def handle(number, frame):
    global got
    got += 1
signal.signal(signal.SIGUSR1, handle)
print("up", flush=True)
while not got:
    time.sleep(0.1)
time.sleep(5)
print("got", got, flush=True)
"""


@pytest.mark.whole
def test_all_ranks_get_it_once_a_pod_is_deleted(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """At once, and SIGTERM does not come while their handlers write."""
    job = Job.submit(
        cluster,
        namespace,
        tmp_path,
        COUNTS,
        python="python3",
        launch="none",
        command=["python3", "program.py"],
        signal={"name": "USR1", "before": "100s"},
    )
    for node in (0, 1):
        job.said(node, "trainer", "] up")
    job.listen()
    pod = job.pods()[1]
    assert 190 == pod["spec"]["terminationGracePeriodSeconds"]
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", namespace, "--wait=false")

    job.said(0, "hub", "sent USR1 to 2 ranks: node 1", seconds=60)
    for node in (0, 1):
        job.said(node, "trainer", "] got 1", seconds=60)
    job.ended()
