"""Jobs on the machines' own network, where they meet each other and whatever else listens there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import one_pod, passes
from tests.cluster.kubernetes.jobs import STEPS, Job
from tests.cluster.kubernetes.pods import pod

from ddplaunch.agent.contract import Verdict, codec

TRAIN = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("up, of", int(ones), flush=True)
time.sleep(600)
"""
PORT = 29400
HOLDER = f"""
import socket, time
with socket.create_server(("", {PORT})):
    print("holds", flush=True)
    time.sleep(600)
"""
GATE: dict[str, Any] = {"timeout": "60s", "skip": ["interpreter", "versions"]}
NAMED: dict[str, Any] = {"python": "python3", "gate": {**GATE, "port": PORT}}
UNNAMED: dict[str, Any] = {"python": "python3", "gate": GATE, "gate_only": True}
HOST: dict[str, Any] = {"kubernetes": {"host_network": True}}


def submit(cluster: Cluster, namespace: str, work: Path, name: str, program: str, **keys: Any) -> Job:
    """A job of that name, whose files lie apart from another's."""
    folder = work / name
    folder.mkdir()
    return Job.submit(cluster, namespace, folder, program, name=name, **HOST, **keys)


def ended(job: Job) -> Verdict:
    """The only verdict of its node 0, for it has no other."""
    assert "PodFailurePolicy" == job.ended()
    print(job.logs())
    (found,) = [codec.load(Verdict, each) for each in job.last_words(0, "gate")["verdicts"]]
    return found


@pytest.mark.whole
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


@pytest.mark.whole
@pytest.mark.fault("store-shared")
def test_a_port_that_another_job_has(faults: Faults, namespace: str, tmp_path: Path) -> None:
    """Both job files name it: the second job ends at once, and says so, instead of asking the first's hub."""
    _, second = faults.cluster.workers
    faults.cordon(second)
    one = submit(faults.cluster, namespace, tmp_path, "one", STEPS, **NAMED, change=one_pod)
    one.said(0, "hub", "listens on")
    two = submit(faults.cluster, namespace, tmp_path, "two", STEPS, **NAMED, change=one_pod)

    found = ended(two)
    assert ("store-shared", [0]) == (found.code, found.nodes)
    assert "port 29400 is held by" in found.sentence
    assert "leave gate.port out" in found.hint

    faults.uncordon(second)
    passes(submit(faults.cluster, namespace, tmp_path, "mended", STEPS, **UNNAMED))


@pytest.mark.fault("port-in-use")
@pytest.mark.whole
def test_a_port_that_something_else_has(faults: Faults, namespace: str, tmp_path: Path) -> None:
    """A service of the machine, say, that is no job's."""
    first, second = faults.cluster.workers
    faults.cordon(second)
    holder = pod("holder", first, HOLDER)
    holder["spec"]["hostNetwork"] = True
    faults.cluster.apply(holder, namespace=namespace)
    faults.cluster.until(
        lambda: "holds" in faults.cluster.api.log("holder", "main", namespace), "it holds it", 60
    )
    job = submit(faults.cluster, namespace, tmp_path, "job", STEPS, **NAMED, change=one_pod)

    found = ended(job)
    assert ("port-in-use", [0]) == (found.code, found.nodes)
    assert "port 29400 is held by" in found.sentence
    assert "choose another port, or leave gate.port out: then a free one is found" in found.hint

    faults.uncordon(second)
    passes(submit(faults.cluster, namespace, tmp_path, "mended", STEPS, **UNNAMED))
