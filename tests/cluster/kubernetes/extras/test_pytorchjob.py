"""PyTorchJobs, by the real training-operator: as they are, and with the gate of `ddplaunch inject`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.workloads import PYTHON, TORCHRUN, Workloads
from tests.cluster.training import hangs

from ddplaunch.agent.contract import Exit

pytestmark = [pytest.mark.usefixtures("training_operator"), pytest.mark.timeout(2400)]
"""The first of them may have to wait until the controller is compiled, and installed."""

NAME = "llm"
LABEL = "training.kubeflow.org/job-name"
OURS = f"{LABEL}={NAME}"
CONTAINER = "pytorch"
PODS = (f"{NAME}-master-0", f"{NAME}-worker-0")
PROGRAM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
{step}
dist.all_reduce(torch.ones(4))
print("trained with", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""
ENDS = PROGRAM.format(step="")
ONCE = PROGRAM.format(
    step="""
if dist.get_rank() == 3 and not os.path.exists("/state/failed"):
    open("/state/failed", "w").close()
    raise RuntimeError("once")
"""
)
_IDLE = {
    "name": "a-sidecar",
    "image": images.TRAINER,
    "imagePullPolicy": "Never",
    "command": ["python3", "-c", "import time; time.sleep(3600)"],
}


@pytest.fixture(name="jobs")
def _jobs(cluster: Cluster, namespace: str, tmp_path: Path) -> Workloads:
    return Workloads(cluster, namespace, tmp_path)


def pytorchjob(jobs: Workloads, command: list[str], nproc: str = "1", **replica: Any) -> dict[str, Any]:
    """A master and a worker on two machines. `replica`: of both."""
    parts = {
        name: {"replicas": 1, "template": jobs.pod(CONTAINER, command, {LABEL: NAME}), **replica}
        for name in ("Master", "Worker")
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": NAME},
        "spec": {"nprocPerNode": nproc, "pytorchReplicaSpecs": parts},
    }


def test_ranks_of_torchrun_are_told_apart_from_pods(jobs: Workloads) -> None:
    """Two ranks in each pod, whose RANK is the pod's number; beside them a container that also has it."""
    jobs.program(hangs(3))
    document = pytorchjob(jobs, [TORCHRUN, "/code/t.py"], "2")
    for part in document["spec"]["pytorchReplicaSpecs"].values():
        part["template"]["spec"]["containers"].insert(0, _IDLE)
    jobs.apply(document)
    jobs.hangs(OURS, CONTAINER, 4)

    verdict = jobs.diagnosed("pytorchjob", NAME)

    assert ("rank-in-user-code", [3], [0, 1, 2]) == (verdict["code"], verdict["ranks"], verdict["victims"])
    assert [1] == verdict["nodes"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_without_torchrun_is_told(jobs: Workloads, rank: int) -> None:
    """The command is the script itself: rank, world and master are the operator's environment alone."""
    jobs.program(hangs(rank))
    jobs.apply(pytorchjob(jobs, [PYTHON, "/code/t.py"]))
    jobs.hangs(OURS, CONTAINER, 2)

    verdict = jobs.diagnosed("pytorchjobs.kubeflow.org", NAME)

    assert ("rank-in-user-code", [rank], [1 - rank]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
    )


def test_an_injected_job_trains_behind_the_gate(jobs: Workloads, agent: str) -> None:
    """Master and worker find one another by the operator's RANK and MASTER_ADDR."""
    jobs.program(ENDS)
    jobs.inject(pytorchjob(jobs, [TORCHRUN, "/code/t.py"], "2", restartPolicy="Never"), agent)

    for pod in PODS:
        code, log = jobs.ends(pod)
        assert (Exit.OK, 2) == (code, log.count("trained with 4")), log
        assert f"of 2; node 0 is {NAME}-master-0" in log, log


def test_an_injected_job_that_hangs_ends_with_one_verdict_in_all_pods(jobs: Workloads, agent: str) -> None:
    """Rank 3 sleeps: master and worker name it in the same words, and the job has failed."""
    jobs.program(hangs(3))
    document = pytorchjob(jobs, [TORCHRUN, "/code/t.py"], "2", restartPolicy="Never")
    jobs.inject(document, agent, "--notice-after=4", "--kill-after=8")

    for pod in PODS:
        code, log = jobs.ends(pod)
        assert Exit.HANG == code, log
        said = " ".join(log.rpartition("ddplaunch verdict")[2].replace("ddplaunch]", "").split())
        assert "rank-in-user-code: rank 3 has been in main (t.py:" in said, said
    jobs.kubectl("wait", "pytorchjob", NAME, "--for=condition=Failed", "--timeout=60s")


def test_an_injected_job_that_is_started_again_meets_at_the_gate_again(jobs: Workloads, agent: str) -> None:
    """Rank 3 fails once. The operator's default has the kubelet start both containers again, and they train.

    What the verdict says stays in the events of the PyTorchJob.
    """
    jobs.program(ONCE)
    document = pytorchjob(jobs, [TORCHRUN, "/code/t.py"], "2")
    for part in document["spec"]["pytorchReplicaSpecs"].values():
        spec = part["template"]["spec"]
        spec["volumes"].append({"name": "state", "emptyDir": {}})
        spec["containers"][0]["volumeMounts"].append({"name": "state", "mountPath": "/state"})
        spec["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"
    jobs.inject(document, agent)

    jobs.kubectl("wait", "pytorchjob", NAME, "--for=condition=Succeeded", "--timeout=115s")
    events = jobs.kubectl("events", "--for", f"pytorchjob/{NAME}")
    for pod in PODS:
        (status,) = jobs.cluster.get("pods", pod, namespace=jobs.namespace)["status"]["containerStatuses"]
        log = jobs.kubectl("logs", pod)
        assert (1, 2) == (status["restartCount"], log.count("trained with 4")), log
        assert f"Error pod {pod} container pytorch exitCode: 40 terminated message: " in events, events
    assert "rank-failed: rank 3 raised RuntimeError: once (t.py:" in events, events


@pytest.mark.fault("node-missing")
def test_an_injected_master_misses_a_worker_that_the_operator_keeps_back(
    jobs: Workloads, agent: str, faults: Faults
) -> None:
    """CoreDNS has no pods: the operator's own init container waits in the worker, before anything of ours."""
    jobs.program(ENDS)
    faults.scale_dns(0)
    document = pytorchjob(jobs, [TORCHRUN, "/code/t.py"], "2", restartPolicy="Never")
    jobs.inject(document, agent, "--gate-timeout=20")

    code, log = jobs.ends(PODS[0])

    assert Exit.NODE_AT_FAULT == code, log
    assert "node-missing: node 1 never came: waited 20 s; node 0 is here" in log
    assert "waiting for master" in jobs.kubectl("logs", PODS[1], "-c", "init-pytorch")
