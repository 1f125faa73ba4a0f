"""A JobSet that somebody wrote without ddplaunch, by its real controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.kubernetes import controllers
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.workloads import TORCHRUN, Workloads
from tests.cluster.training import hangs

pytestmark = [pytest.mark.usefixtures("jobset"), pytest.mark.timeout(2400)]
"""It may have to wait until the controller is compiled."""

LABEL = "jobset.sigs.k8s.io/jobset-name"
COMMAND = [
    TORCHRUN,
    "--nnodes=2",
    "--node-rank=$(JOB_COMPLETION_INDEX)",
    "--master-addr=llm-node-0-0.llm",
    "--nproc-per-node=1",
    "/code/t.py",
]


@pytest.fixture(name="namespace")
def _namespace(cluster: Cluster) -> Iterator[str]:
    """An empty one, at which the controller looks."""
    with cluster.namespace(**{controllers.LABEL: "true"}) as name:
        yield name
        print(cluster.describe(name))  # shown when the test failed


def test_a_rank_of_a_jobset_is_told(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """It sleeps on the second node, in a pod that plain torchrun began."""
    jobs = Workloads(cluster, namespace, tmp_path)
    jobs.program(hangs(1))
    template = jobs.pod("trains", COMMAND, {LABEL: "llm"})
    template["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
    jobs.apply(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "llm"},
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
        }
    )
    jobs.hangs(f"{LABEL}=llm", "trains", 2)

    verdict = jobs.diagnosed("jobset", "llm")
    found = (verdict["code"], verdict["nodes"], verdict["ranks"], verdict["victims"])
    assert ("rank-in-user-code", [1], [1], [0]) == found
