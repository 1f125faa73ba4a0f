"""Jobs on the machines' own network, where they meet each other and whatever else listens there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.jobs import STEPS, Documents, Job

from ddplaunch.agent.contract import Verdict

TRAIN = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("up, of", int(ones), flush=True)
time.sleep(600)
"""
HOST: dict[str, Any] = {"kubernetes": {"host_network": True}}


def submit(cluster: Cluster, namespace: str, work: Path, name: str, program: str, **keys: Any) -> Job:
    """A job of that name, whose files lie apart from another's."""
    folder = work / name
    folder.mkdir()
    return Job.submit(cluster, namespace, folder, program, name=name, **HOST, **keys)


def test_two_jobs_share_the_machines(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Each derives its ports from its own key, so both train side by side, by the machines' addresses."""
    jobs = [submit(cluster, namespace, tmp_path, name, TRAIN) for name in ("one", "two")]
    for job in jobs:
        for node in (0, 1):
            job.said(node, "trainer", "] up, of 2", seconds=240)

    machines = {each["metadata"]["name"]: each["status"]["addresses"] for each in cluster.get("nodes")}
    listening = []
    for job in jobs:
        assert job.machine(0) != job.machine(1)
        for node in (0, 1):
            own = {"type": "InternalIP", "address": job.address(node)}
            assert own in machines[job.machine(node)]
        listening += re.findall(r"listens on \S+ port (\d+)", job.log(0, "hub"))
    assert 2 == len(set(listening)), listening


def test_a_port_that_another_job_has(faults: Faults, namespace: str, tmp_path: Path) -> None:
    """Both job files name it: the second job ends at once, and says so, instead of asking the first's hub."""
    first, second = faults.cluster.workers
    faults.cordon(second)

    def one_pod(documents: Documents) -> None:
        documents[-1]["spec"]["parallelism"] = 1

    gate = {"port": 29400, "timeout": "60s", "skip": ["interpreter", "versions"]}
    keys = {"python": "python3", "gate": gate, "change": one_pod}
    one = submit(faults.cluster, namespace, tmp_path, "one", STEPS, **keys)
    one.said(0, "hub", "listens on")
    two = submit(faults.cluster, namespace, tmp_path, "two", STEPS, **keys)

    assert "PodFailurePolicy" == two.ended()
    assert first == two.machine(0)
    (found,) = [Verdict(**each) for each in two.last_words(0, "gate")["verdicts"]]
    assert ("store-shared", [0]) == (found.code, found.nodes)
    assert "port 29400 is held by" in found.sentence
