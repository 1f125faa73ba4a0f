"""LeaderWorkerSets, by the real controller: leader and workers of a group are the nodes of one job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.workloads import TORCHRUN, Workloads
from tests.cluster.training import hangs

pytestmark = [pytest.mark.usefixtures("lws"), pytest.mark.timeout(2400)]
"""The first of them may have to wait until the controller is compiled, and installed."""

NAME = "llm"
LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP = "leaderworkerset.sigs.k8s.io/group-index"
COMMAND = [
    TORCHRUN,
    "--nnodes=$(LWS_GROUP_SIZE)",
    "--node-rank=$(LWS_WORKER_INDEX)",
    "--master-addr=$(LWS_LEADER_ADDRESS)",
    "--nproc-per-node=1",
    "/code/t.py",
]


@pytest.fixture(name="jobs")
def _jobs(cluster: Cluster, namespace: str, tmp_path: Path) -> Workloads:
    jobs = Workloads(cluster, namespace, tmp_path)
    jobs.program(hangs(1))
    return jobs


def start(jobs: Workloads, groups: int) -> None:
    """Each group trains by itself, and its second rank sleeps."""
    worker = jobs.pod("trains", COMMAND, {"none": "none"})
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": NAME},
        "spec": {"replicas": groups, "leaderWorkerTemplate": {"size": 2, "workerTemplate": worker}},
    }
    jobs.apply(document)
    jobs.hangs(f"{LABEL}={NAME}", "trains", 2 * groups)


def test_a_rank_of_a_group_is_told(jobs: Workloads) -> None:
    """The leader is node 0; the kind is spelled as kubectl takes it."""
    start(jobs, groups=1)

    for kind in ("lws", "leaderworkerset"):
        verdict = jobs.diagnosed(kind, NAME)
        found = (verdict["code"], verdict["nodes"], verdict["ranks"], verdict["victims"])
        assert ("rank-in-user-code", [1], [1], [0]) == found


def test_of_several_groups_one_is_named(jobs: Workloads) -> None:
    """Two groups are two jobs: nothing is told of both, and the hint has the labels of one."""
    start(jobs, groups=2)

    words = ["ddplaunch", "diagnose", f"kubernetes://{jobs.namespace}/lws/{NAME}"]
    refused = jobs.cluster.run(words, check=False, timeout=240)
    one = f"kubernetes://{jobs.namespace}?selector={LABEL}={NAME},{GROUP}=1"
    told = json.loads(jobs.cluster.run(["ddplaunch", "diagnose", one, "--json"], timeout=240).stdout)

    assert 2 == refused.returncode, refused.stdout
    assert f"rank 0 runs in two pods of LeaderWorkerSet {NAME}" in refused.stderr
    assert one.replace("=1", "=0") in " ".join(refused.stderr.split())
    assert ("rank-in-user-code", [1]) == (told["verdicts"][0]["code"], told["verdicts"][0]["ranks"])
