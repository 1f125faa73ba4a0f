"""A JobSet that somebody wrote without ddplaunch, by its real controller: as it is, and with our gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import controllers
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.workloads import TORCHRUN, Workloads
from tests.cluster.training import hangs

from ddplaunch.agent.contract import Exit

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


@pytest.fixture(name="jobs")
def _jobs(cluster: Cluster, namespace: str, tmp_path: Path) -> Workloads:
    return Workloads(cluster, namespace, tmp_path)


def jobset(jobs: Workloads, **more: Any) -> dict[str, Any]:
    """Two pods on two machines, each begun by plain torchrun. `more`: of its Job."""
    template = jobs.pod("trains", COMMAND, {LABEL: "llm"})
    template["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template, **more}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "llm"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


@pytest.mark.whole
def test_a_rank_of_a_jobset_is_told(jobs: Workloads) -> None:
    """It sleeps on the second node, and nobody has asked for ddplaunch before."""
    jobs.program(hangs(1))
    jobs.apply(jobset(jobs))
    jobs.hangs(f"{LABEL}=llm", "trains", 2)

    verdict = jobs.diagnosed("jobset", "llm")
    found = (verdict["code"], verdict["nodes"], verdict["ranks"], verdict["victims"])
    assert ("rank-in-user-code", [1], [1], [0]) == found


@pytest.mark.whole
def test_an_injected_jobset_ends_with_one_verdict_in_all_pods(jobs: Workloads, agent: str) -> None:
    """Its pods meet at the gate by the controller's names; both name the rank that sleeps."""
    jobs.program(hangs(1))
    jobs.inject(jobset(jobs, backoffLimit=0), agent, "--notice-after=4", "--kill-after=8")
    jobs.cluster.until(lambda: len(pods(jobs)) == 2, "two pods are there", 120, jobs.described)

    for pod in pods(jobs):
        code, log = jobs.ends(pod)
        assert Exit.HANG == code, log
        said = " ".join(log.rpartition("ddplaunch verdict")[2].replace("ddplaunch]", "").split())
        assert "rank-in-user-code: rank 1 has been in main (t.py:" in said, said
    jobs.kubectl("wait", "jobset", "llm", "--for=condition=Failed", "--timeout=60s")


def pods(jobs: Workloads) -> list[str]:
    """The names of those that there are."""
    found = jobs.cluster.get("pods", namespace=jobs.namespace, selector=f"{LABEL}=llm")
    return sorted(each["metadata"]["name"] for each in found)
