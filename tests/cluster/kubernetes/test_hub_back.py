"""A hub in a pod that is killed with its container: the kubelet starts another, which keeps the watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import Job
from tests.cluster.training import TRAIN

from ddplaunch.agent.contract import Exit

START = 240.0
pytestmark = pytest.mark.slow


@pytest.mark.whole
def test_a_hang_after_the_hubs_container_was_killed(
    cluster: Cluster, faults: Faults, namespace: str, tmp_path: Path
) -> None:
    """Both supervisors come back to the hub in its place, which ends the job and names the stopped rank.

    It lacks the right to make Events, and says once which.
    """
    stop = "os.path.exists('/tmp/stop') and os.kill(os.getpid(), 19)"
    watchdog = {"notice_after": "5s", "kill_after": "10s"}
    keys: dict[str, Any] = {"watchdog": watchdog, "notify": [{"events": True}]}
    job = Job.submit(cluster, namespace, tmp_path, TRAIN.format(before="", step=stop), **keys)
    for node in (0, 1):
        job.said(node, "trainer", "] up", seconds=START)
    faults.run(job.machine(0), "pkill", "-KILL", "-f", "agent.pyz hub")
    job.said(1, "trainer", "the hub answers again")
    job.said(0, "trainer", "the hub answers again")
    job.listen()
    in_pod = ["exec", "--namespace", namespace, job.pod(1), "--container=trainer", "--"]
    cluster.kubectl(*in_pod, "touch", "/tmp/stop")

    assert "PodFailurePolicy" == job.ended(START), job.logs()
    found = job.bundle()
    assert [("rank-stopped", [1], [1])] == [(each.code, each.ranks, each.nodes) for each in found.verdicts]
    assert Exit.HANG == found.exit_code
    assert [0, 1] == [each.node for each in found.check_ins]
    (line,) = [each for each in (tmp_path / "hub.log").read_text().splitlines() if "got no message" in each]
    right = f'"system:serviceaccount:{namespace}:default" cannot create resource "events" in API group '
    assert line.startswith("the Job's Events got no message: the API server answers 403: ")
    assert right + '"events.k8s.io"' in line


@pytest.mark.whole
def test_a_pod_that_is_told_to_stop_twice(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """The second SIGTERM changes nothing: evidence first, and the other pod learns who was told."""
    job = Job.submit(cluster, namespace, tmp_path, TRAIN.format(before="", step="pass"))
    for node in (0, 1):
        job.said(node, "trainer", "] up", seconds=START)
    job.listen()
    in_pod = ["exec", "--namespace", namespace, job.pod(1), "--container=trainer", "--"]
    cluster.kubectl(*in_pod, "sh", "-c", "kill -TERM 1; sleep 0.3; kill -TERM 1")

    assert "PodFailurePolicy" == job.ended(START), job.logs()
    found = job.verdict
    assert ("node-evicted", [1], [0]) == (found.code, found.nodes, found.victims)
    assert Exit.STOPPED == job.last_words(0, "trainer")["exit"]
    evidence = job.bundle().evidence
    assert evidence is not None
    assert [0, 1] == [each.node for each in evidence.evidence]
